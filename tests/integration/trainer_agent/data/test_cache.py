"""Data by URL: real fetches in processes of their own, from real servers, good and bad ones."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from testing.data_nodes import LIMITS, Node
from testing.data_servers import CONTENT, SHA256, DataServer, data_server, raw_server
from testing.until import until
from tiercel.trainer_agent.data.cache import DataLimits
from tiercel.trainer_agent.data.fetching import FetchLimits
from tiercel.trainer_agent.data.sources import AllowedSources
from tiercel.trainer_agent.errors import DataGoneError, RunFailedError


@pytest.fixture
async def server() -> AsyncIterator[DataServer]:
    async with data_server() as running:
        yield running


@pytest.fixture
def node(tmp_path: Path, server: DataServer) -> Node:
    """A node whose operator trusts the server."""
    return Node(tmp_path / "cache", trusting(server.url))


def trusting(url: str) -> DataLimits:
    """Limits of a node that trusts the host of a URL."""
    return replace(LIMITS, sources=AllowedSources((url.rpartition("/")[0] + "/",)))


async def test_a_file_is_fetched_once_and_read_only(node: Node, server: DataServer) -> None:
    mount = await node.get(server.url)
    assert (mount.name, mount.is_folder, mount.path.name) == ("digits", False, "x.npz")
    assert mount.path.read_bytes() == CONTENT
    assert stat.S_IMODE(mount.path.stat().st_mode) == 0o444
    assert node.lines == [
        f"data set digits: fetching {server.url}, 1.0 MiB",
        f"data set digits: 1.0 MiB of {server.url}, SHA-256 {SHA256}",
    ]
    assert await node.get(server.url, run_id="job-2") == mount
    node.restart()
    assert await node.get(server.url, SHA256) == mount
    assert server.asked["/x.npz"] == 2, "what the job says is here: nobody has to be asked"


async def test_another_version_is_another_file(node: Node, server: DataServer) -> None:
    first = await node.get(server.url)
    server.files["/x.npz"] = (b"other", '"2"')
    second = await node.get(server.url, run_id="job-2")
    assert (first.path.read_bytes(), second.path.read_bytes()) == (CONTENT, b"other")
    server.files["/x.npz"] = (b"third", "")
    assert (await node.get(server.url, run_id="job-3")).path.read_bytes() == b"third"
    server.files["/x.npz"] = (b"fourth", "")
    assert (await node.get(server.url, run_id="job-4")).path.read_bytes() == b"fourth", (
        "nobody said that it is the same"
    )


async def test_ten_at_once_fetch_it_once(node: Node, server: DataServer) -> None:
    server.hold.clear()
    asking = [asyncio.ensure_future(node.get(server.url, run_id=f"job-{number}")) for number in range(10)]
    await until(lambda: server.asked["/x.npz"], seconds=90)
    assert not [path for path in node.files() if "entries" in path.parts], "nothing is seen before it is complete"
    server.hold.set()
    mounts = await asyncio.gather(*asking)
    assert len({mount.path for mount in mounts}) == 1
    assert mounts[0].path.read_bytes() == CONTENT
    assert server.asked["/x.npz"] == 1


async def test_a_wrong_hash_is_refused(node: Node, server: DataServer) -> None:
    error = await node.refusal(server.url, "0" * 64)
    assert type(error) is RunFailedError
    assert f"it has the SHA-256 {SHA256}, and the job asks for {'0' * 64}" in error.message


async def test_what_is_not_there_and_what_is_too_large(node: Node, server: DataServer) -> None:
    error = await node.refusal(f"{server.url}.missing?token=secret")
    assert "answers 404 Not Found" in error.message
    assert "secret" not in error.message
    server.files["/x.npz"] = (bytes(11 * len(CONTENT)), '"big"')
    error = await node.refusal(server.url)
    assert f"more than the {10 * len(CONTENT)} that the node's cache holds" in error.message


async def test_a_server_that_is_ill_is_asked_again(node: Node, server: DataServer) -> None:
    server.answers = [503]
    assert (await node.get(server.url)).path.read_bytes() == CONTENT
    assert node.lines[0] == "data set digits: its server answers 503 Service Unavailable; once more in 0.01 s"
    server.answers = [503, 500]
    server.files["/y"] = (b"y", "")
    shutil.rmtree(node.folder)
    node.restart()
    error = await node.refusal(server.url.replace("x.npz", "y"))
    assert isinstance(error, DataGoneError), "through no fault of the job"


async def test_addresses_of_this_machine_and_its_network_are_refused(tmp_path: Path, server: DataServer) -> None:
    node = Node(tmp_path / "cache", replace(LIMITS, sources=AllowedSources()))
    for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]"):
        error = await node.refusal(server.url.replace("127.0.0.1", host))
        assert "which is no address of the internet" in error.message, host
    assert "no place on the web" in (await node.refusal(server.url.replace("127.0.0.1", "2130706433"))).message
    assert not server.asked, "nobody was asked"


@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "http://169.254.169.254/latest/meta-data", "//127.0.0.1:1/x"]
)
async def test_a_redirection_leads_nowhere_else(node: Node, server: DataServer, target: str) -> None:
    server.redirects["/x.npz"] = target
    error = await node.refusal(server.url)
    assert "no place on the web" in error.message or "no address of the internet" in error.message


LIES = [
    (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort", "payload is not completed"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Encoding: gzip\r\n\r\nshort", "compressed"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n", "payload is not completed"),
    (b"garbage\r\n\r\n", "Expected HTTP"),
    (b"HTTP/1.1 404 " + b"\x1b[2J" * 1000 + b"\r\n\r\n", "answers 404 \ufffd[2J"),
]


@pytest.mark.parametrize(("answer", "words"), LIES)
async def test_a_server_that_lies_leaves_nothing(tmp_path: Path, answer: bytes, words: str) -> None:
    async with raw_server(answer) as url:
        error = await Node(tmp_path / "cache", trusting(url)).refusal(url)
    assert words in error.message
    assert error.message.isprintable()
    assert len(error.message) < 1000


async def test_a_server_that_falls_silent_and_one_that_never_ends(tmp_path: Path) -> None:
    silent = replace(LIMITS, fetch=FetchLimits(silence_seconds=1.0), pauses=())

    async def wait(_: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with raw_server(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort", wait) as url:
        limits = replace(silent, sources=trusting(url).sources)
        error = await Node(tmp_path / "silent", limits).refusal(url)
        assert "says nothing" in error.message or "nothing came" in error.message

    async def pour(writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            writer.write(bytes(1 << 16))
            await writer.drain()

    async with raw_server(b"HTTP/1.1 200 OK\r\n\r\n", pour) as url:
        error = await Node(tmp_path / "endless", trusting(url)).refusal(url)
        assert "more than the" in error.message


async def test_a_fetch_that_is_killed_in_the_middle_is_tried_again(node: Node, server: DataServer) -> None:
    server.hold.clear()
    asking = asyncio.ensure_future(node.get(server.url))
    await until(lambda: node.files(), seconds=90)
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # one of another test that is over and not buried yet
            if "tiercel.trainer_agent.data.fetch" in child.cmdline():
                child.kill()
    await until(lambda: len(node.lines) > 1, seconds=90)
    assert "ended by itself" in node.lines[1]
    server.hold.set()
    assert (await asking).path.read_bytes() == CONTENT


async def test_a_run_that_is_stopped_ends_its_fetch_and_leaves_nothing(node: Node, server: DataServer) -> None:
    server.hold.clear()
    asking = [asyncio.ensure_future(node.get(server.url, run_id=f"job-{number}")) for number in range(2)]
    await until(lambda: server.asked["/x.npz"], seconds=90)
    node.stopped = True
    for error in await asyncio.gather(*asking, return_exceptions=True):
        assert isinstance(error, RunFailedError)
    assert node.files() == []


async def test_what_an_agent_that_was_killed_left_is_removed(node: Node, server: DataServer) -> None:
    place, content = node.cache.table.begin()
    (content / "x.npz").write_bytes(b"half")
    (node.folder / "entries" / "no-record").mkdir()
    node.restart()
    assert not place.exists()
    assert list((node.folder / "entries").iterdir()) == []


async def test_a_full_disk_fails_no_job(node: Node, server: DataServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(node.cache.table, "begin", full)
        assert isinstance(await node.refusal(server.url), DataGoneError)
    node.cache.table._reserve_bytes = 1 << 60
    error = await node.refusal(server.url)
    assert isinstance(error, DataGoneError)
    assert "the disk of its node has" in error.message


async def test_what_somebody_changed_in_the_cache_is_fetched_again(node: Node, server: DataServer) -> None:
    first = await node.get(server.url)
    first.path.chmod(0o644)
    first.path.write_bytes(b"poison" + CONTENT[6:])
    second = await node.get(server.url, SHA256, run_id="job-2")
    assert second.path.read_bytes() == CONTENT
    assert first.path.exists(), "a run may use it still"


async def test_folders_of_the_node_that_its_operator_opened(tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    (opened / "set" / "deep").mkdir(parents=True)
    (opened / "set" / "a").write_bytes(b"a")
    (opened / "set" / "deep" / "b").write_bytes(b"b")
    (opened / "set" / "link").symlink_to("/etc/passwd")
    (opened / "way-out").symlink_to("/etc")
    os.mkfifo(opened / "set" / "pipe")
    node = Node(tmp_path / "cache", replace(LIMITS, sources=AllowedSources((f"file://{opened}/",))))
    for refused in ("/etc/passwd", f"{opened}/../x", f"{opened}/way-out/passwd", f"{opened}/none", f"{opened}2"):
        assert (await node.refusal(f"file://{refused}")).message
    mount = await node.get(f"file://{opened}/set")
    assert mount.is_folder
    assert sorted(path.relative_to(mount.path).as_posix() for path in mount.path.rglob("*")) == ["a", "deep", "deep/b"]
    lines = "".join(
        f"{hashlib.sha256(name.encode()).hexdigest()}  {path}\n" for name, path in (("a", "a"), ("b", "deep/b"))
    )
    assert hashlib.sha256(lines.encode()).hexdigest() in node.lines[-1]
    assert (await node.get(f"file://{opened}/set", run_id="job-2")).path == mount.path
    (opened / "set" / "a").write_bytes(b"changed")
    assert ((await node.get(f"file://{opened}/set", run_id="job-3")).path / "a").read_bytes() == b"changed"


async def test_a_store_whose_library_is_not_there_is_named(tmp_path: Path) -> None:
    error = await Node(tmp_path / "cache").refusal("gs://bucket/data")
    assert "pip install gcsfs" in error.message
