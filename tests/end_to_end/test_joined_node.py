"""A machine joins by one line, trains for the broker on another one, answers tenants, and is sent away again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import psutil
import pytest

from testing.membership import WIDE
from testing.product_use import JOB_SECONDS, digits_job, get_json, running_product, tiercel
from tiercel import Client
from tiercel.broker.client.state_dir import read_addresses, read_token
from tiercel.core.jobs import JobState
from tiercel.core.trust.trust import Trust

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]


async def test_a_machine_joins_trains_answers_and_is_sent_away(tmp_path: Path) -> None:
    node = tmp_path / "node"
    async with running_product(tmp_path, "--listen", WIDE) as product:
        state = product.state_dir
        assert product.addresses["serving_http"].startswith("127.0.0.1:")
        assert read_addresses(state)["serving_https"].startswith(f"{WIDE}:")
        await the_brokers_own_node_answers(state)
        said = await tiercel("node", "token", "--node-id", "far", state_dir=state)
        assert said.exit_code == 0, said.errors
        line = said.output.split()
        assert line[:2] == ["tiercel", "join"]
        assert line[3] == "--token"
        assert line[5:] == ["--node-id", "far"]
        address, token = line[2], line[4]
        assert address == read_addresses(state)["broker_tls"]

        # Not on the command line, as the broker's operator is told to do.
        options = ("--token", "-", "--node-id", "far", "--runtime", "process", "--cpu-cores", "1", "--detach")
        joined = await tiercel(
            "join", address, *options, "--label", "place=far", "--advertise", WIDE, state_dir=node, text=token
        )
        try:
            assert joined.exit_code == 0, joined.errors
            assert "Tiercel is up: node far" in joined.output
            assert (node / "agent" / "identity.pem").stat().st_mode & 0o777 == 0o600
            assert files_with(token.rpartition(".")[2], tmp_path) == []
            await it_trains_there(state)

            removed = await tiercel("node", "remove", "far", state_dir=state)
            assert removed.exit_code == 0, removed.errors
            async with asyncio.timeout(JOB_SECONDS):
                while "the node was removed" not in (node / "agent.log").read_text():  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.1)
        finally:
            stopped = await tiercel("down", state_dir=node)
            assert stopped.exit_code == 0, stopped.errors
    assert not [each for each in psutil.process_iter(["cmdline"]) if str(node) in " ".join(each.info["cmdline"] or ())]


async def it_trains_there(state: Path) -> None:
    """Asked for by a tenant elsewhere, who knows the broker by its pin."""
    addresses, token = read_addresses(state), read_token(state, "alice")
    async with Client(addresses["broker_tls"], token=token, trust=Trust(pin=addresses["pin"])) as client:
        job = await client.submit(digits_job(targets=(0.5,), node_labels={"place": "far"}))
        finished = await job.wait(JOB_SECONDS)
        assert finished.state is JobState.COMPLETED, finished.reason
        assert finished.node_id == "far"
        nodes = {node.id: node for node in await client.list_nodes()}
        assert nodes["far"].serving_http.startswith(f"https://{WIDE}:")
        answer = await client.infer("digits", {"input": [[[0.0] * 8] * 8]})
        assert (answer.version, len(answer.outputs)) == (1, 1)
    # The broker's own node is asked for it, and hands it on by TLS.
    async with asyncio.timeout(JOB_SECONDS):
        while (found := await get_json(f"http://{addresses['serving_http']}/v2/models/digits"))[0] != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert found[1]["versions"] == ["1"]


async def the_brokers_own_node_answers(state: Path) -> None:
    """Asked by a tenant elsewhere, by TLS."""
    identity = state / "agent" / "serving-identity.pem"
    assert identity.stat().st_mode & 0o777 == 0o600
    addresses, token = read_addresses(state), read_token(state, "bob")
    async with Client(addresses["broker_tls"], token=token, trust=Trust(pin=addresses["pin"])) as client:
        job = await client.submit(digits_job("near", targets=(0.3,)))
        finished = await job.wait(JOB_SECONDS)
        assert finished.state is JobState.COMPLETED, finished.reason
        assert len((await client.infer("near", {"input": [[[0.0] * 8] * 8]})).outputs) == 1
    listed = await tiercel("endpoints", "--json", state_dir=state, tenant="bob")
    assert f"https://{WIDE}:" in listed.output
    # On its own machine, too: a tenant there asks where it is told.
    said = await tiercel("infer", "near", state_dir=state, tenant="bob", text=json.dumps({"input": [[[0.0] * 8] * 8]}))
    assert said.exit_code == 0, said.errors


def files_with(secret: str, folder: Path) -> list[str]:
    """Files in which the secret stands."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return [str(path) for path in found if secret.encode() in path.read_bytes()]
