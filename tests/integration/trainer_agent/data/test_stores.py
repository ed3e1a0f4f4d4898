"""Data of stores, by the real libraries: s3fs from a server that speaks S3, huggingface_hub from one like its hub."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from testing.data_nodes import LIMITS, Node
from testing.hub_server import TOKEN, HubServer, hub_server
from testing.s3_server import BUCKET, CuttingProxy, S3Server, s3_server
from tiercel.trainer_agent.data import fetching
from tiercel.trainer_agent.data.sources import AllowedSources
from tiercel.trainer_agent.errors import DataGoneError, RunFailedError

MIB = 1024**2


@pytest.fixture(scope="module")
def store() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.fixture
def node(tmp_path: Path, store: S3Server, monkeypatch: pytest.MonkeyPatch) -> Node:
    """One whose operator trusts the bucket, and has given the agent what opens it."""
    monkeypatch.setenv("HOME", str(tmp_path))  # no credentials of whoever runs this
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    sources = AllowedSources((f"s3://{BUCKET}/", "hf://datasets/team/"))
    return Node(tmp_path / "cache", replace(LIMITS, cache_bytes=40 * MIB, sources=sources))


@pytest.fixture
async def hub(node: Node, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HubServer]:
    async with hub_server() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield running


def lines_of(files: dict[str, bytes]) -> bytes:
    """What ``sha256sum`` prints of a folder."""
    return "".join(f"{hashlib.sha256(files[path]).hexdigest()}  {path}\n" for path in sorted(files)).encode()


async def test_an_object_is_fetched_once_until_it_changes(node: Node, store: S3Server) -> None:
    url = store.put("a.npz", b"first")
    first = await node.get(url)
    assert (first.path.name, first.path.read_bytes()) == ("a.npz", b"first")
    assert (await node.get(url, run_id="job-2")).path == first.path
    assert sum("fetching" in line for line in node.lines) == 1
    store.put("a.npz", b"other")
    assert (await node.get(url, run_id="job-3")).path.read_bytes() == b"other"


async def test_a_prefix_is_a_folder(node: Node, store: S3Server) -> None:
    files = {"a": b"a", "deep/b c.csv": b"b"}
    for path, content in files.items():
        store.put(f"set/{path}", content)
    store.put("set/", b"")  # as consoles make folders
    store.put("settings", b"of somebody else")
    mount = await node.get(f"s3://{BUCKET}/set", hashlib.sha256(lines_of(files)).hexdigest())
    found = {path.relative_to(mount.path).as_posix(): path for path in mount.path.rglob("*") if path.is_file()}
    assert {name: path.read_bytes() for name, path in found.items()} == files


@pytest.mark.parametrize("key", ["way/../../out", "twice//x"])
async def test_no_key_leads_out_of_the_folder(node: Node, store: S3Server, key: str) -> None:
    store.put(f"bad-{key}", b"x")
    error = await node.refusal(f"s3://{BUCKET}/bad-{key.partition('/')[0]}")
    assert "whose path is none" in error.message


async def test_what_is_not_there_what_is_wrong_and_what_is_too_large(node: Node, store: S3Server) -> None:
    for url in (f"s3://{BUCKET}/none", f"s3://{BUCKET}/none/"):
        error = await node.refusal(url)
        assert type(error) is RunFailedError
        assert "there is no such file or folder" in error.message
    error = await node.refusal(store.put("wrong", b"x"), "0" * 64)
    assert f"it has the SHA-256 {hashlib.sha256(b'x').hexdigest()}, and the job asks for" in error.message
    error = await node.refusal(store.put("large", bytes(41 * MIB)))
    assert f"it has {41 * MIB} bytes, more than the {40 * MIB} that the node's cache holds" in error.message
    store.client.delete_object(Bucket=BUCKET, Key="large")


async def test_a_connection_that_breaks_in_the_middle_is_taken_up_there(
    node: Node, store: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytes(range(256)) * 40 * 1024
    url = store.put("broken", content)
    async with CuttingProxy(store.port, [3 * MIB, 4 * MIB]).running() as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        assert (await node.get(url)).path.read_bytes() == content
    assert len(proxy.cut) == 2
    assert not any("once more" in line for line in node.lines)


async def test_a_node_without_what_opens_a_bucket_says_so(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    error = await node.refusal(f"s3://{BUCKET}/a.npz")
    assert type(error) is RunFailedError
    assert "the node's credentials do not open it, or it has none" in error.message


async def test_nothing_leads_a_tenant_to_a_store_of_the_node_s_network(
    tmp_path: Path, node: Node, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    distrustful = Node(tmp_path / "distrustful", replace(LIMITS, pauses=()))
    # As if the library found the place by itself, by settings, names or what a server says.
    monkeypatch.setattr(fetching, "_INHERITED", (*fetching._INHERITED, "AWS_ENDPOINT_URL", "HF_ENDPOINT"))
    for url in (f"s3://{BUCKET}/a.npz", "hf://datasets/team/books"):
        error = await distrustful.refusal(url)
        assert type(error) is RunFailedError
        assert "its host leads to 127.0.0.1, which is no address of the internet" in error.message
    assert hub.heard == []


async def test_a_store_that_nobody_hears_fails_no_job(node: Node, hub: HubServer) -> None:
    hub.answers = [503] * 10
    assert isinstance(await node.refusal("hf://datasets/team/books"), DataGoneError)


async def test_data_sets_of_a_hub(node: Node, hub: HubServer) -> None:
    hub.files = {"a.csv": b"a", "deep/b.csv": b"b" * MIB}
    mount = await node.get("hf://datasets/team/books")
    assert (mount.path / "deep" / "b.csv").read_bytes() == b"b" * MIB
    assert f"SHA-256 {hashlib.sha256(lines_of(hub.files)).hexdigest()}" in node.lines[-1]
    assert (await node.get("hf://datasets/team/books", run_id="job-2")).path == mount.path
    hub.files["a.csv"] = b"new"
    assert (await node.get("hf://datasets/team/books@main", run_id="job-3")).path != mount.path
    file = await node.get("hf://datasets/team/books/a.csv", run_id="job-3")
    assert (file.path.name, file.path.read_bytes(), set(hub.heard)) == ("a.csv", b"new", {""})


async def test_a_private_data_set_takes_the_node_s_token(
    node: Node, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.files, hub.is_private = {"a.csv": b"a"}, True
    error = await node.refusal("hf://datasets/team/books/a.csv")
    assert type(error) is RunFailedError
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert (await node.get("hf://datasets/team/books/a.csv")).path.read_bytes() == b"a"
    assert "hf_operator" not in "".join(node.lines)


async def test_a_list_of_files_without_an_end_takes_no_more_memory_than_it_may(node: Node, hub: HubServer) -> None:
    hub.is_endless = True
    node.limits = replace(node.limits, fetch=replace(node.limits.fetch, memory_bytes=256 * MIB))
    node.restart()
    error = await node.refusal("hf://datasets/team/books")
    assert type(error) is RunFailedError
    assert "its list of files is too long for the node; at most 100000 are taken" in error.message
