"""A machine joins by one line, trains for the broker on another one, answers tenants, and is sent away again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from testing.needs import has_ipv6
from testing.product_use import JOB_SECONDS, digits_job, files_with, get_json, running_product, tiercel
from testing.weak_tls import hears_strangers, weaknesses_of
from tiercel import Client, EndpointClient, NotFoundError
from tiercel.broker.client.state_dir import read_addresses, read_token
from tiercel.core.addresses import join_address, split_address
from tiercel.core.endpoint_access import EndpointAccess
from tiercel.core.errors import NotAllowedError, UnavailableError
from tiercel.core.jobs import JobState
from tiercel.core.trust.trust import Trust

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

# By IPv6, where there is any; the hosts of test_hosts.py have addresses of IPv4.
WIDE = "::1" if has_ipv6() else "127.0.0.2"
SHOWN = join_address(WIDE, 0).removesuffix("0")

CALLED = "far.lab.example"
OWN_NAME = "broker.lab.example"

INPUTS = {"input": [[[0.0] * 8] * 8]}


async def test_a_machine_joins_trains_answers_and_is_sent_away(tmp_path: Path) -> None:
    node = tmp_path / "node"
    names = ("--listen-name", WIDE, "--listen-name", OWN_NAME)  # the first is told to others
    async with running_product(tmp_path, "--listen", WIDE, *names) as product:
        state = product.state_dir
        assert product.addresses["serving_http"].startswith("127.0.0.1:")
        assert read_addresses(state)["serving_https"].startswith(SHOWN)
        await the_brokers_own_node_answers(state)
        await every_door_has_the_operators_name(state)
        said = await tiercel("node", "token", "--node-id", "far", "--listen-name", CALLED, state_dir=state)
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
            await no_door_is_weak(state)
            await another_authority_takes_over(state, node)

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
        assert nodes["far"].serving_http.startswith(f"https://{SHOWN}")
        await it_is_called_as_its_token_said(nodes["far"].serving_http, state / "authority.pem")
        answer = await client.infer("digits", INPUTS)
        assert (answer.version, len(answer.outputs)) == (1, 1)
        await those_ask_who_may_do_little_else(client, state)
    # The broker's own node is asked for it, and hands it on by TLS.
    async with asyncio.timeout(JOB_SECONDS):
        while (found := await get_json(f"http://{addresses['serving_http']}/v2/models/digits"))[0] != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert found[1]["versions"] == ["1"]


async def it_is_called_as_its_token_said(url: str, authority: Path) -> None:
    """By a client that knows nothing of Tiercel, but the name and the authority's file."""
    assert await told_status(url.removeprefix("https://"), CALLED, authority) == 200


async def told_status(door: str, name: str, authority: Path) -> int:
    """What an inference server answers whoever asks it by a name."""
    context = ssl.create_default_context(cafile=authority)
    host, port = split_address(door)
    reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
    writer.write(f"GET /v2/health/live HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
    status = int((await reader.readline()).split()[1])
    writer.close()
    return status


async def those_ask_who_may_do_little_else(owner: Client, state: Path) -> None:
    """A viewer what is public; and who has nothing but a key, the address of a node and the broker's pin."""
    addresses = read_addresses(state)
    made = await tiercel("token", "create", "eyes", "--tenant", "alice", state_dir=state)
    assert made.exit_code == 0, made.errors
    pin = Trust(pin=addresses["pin"])
    async with Client(addresses["broker_tls"], token=made.output.strip(), trust=pin) as viewer:
        with pytest.raises(NotAllowedError, match="submitter"):
            await viewer.infer("digits", INPUTS)
        await owner.keys.set_access("digits", EndpointAccess.PUBLIC)
        await until_it_answers(lambda: viewer.infer("digits", INPUTS))
    await owner.keys.set_access("digits", EndpointAccess.KEY)
    _, key = await owner.keys.create("digits")
    # Asked at the broker's own node, which hands it on to the one that has it.
    address = f"https://{addresses['serving_https']}"
    async with EndpointClient(address, trust=pin) as stranger:
        await until_refused(lambda: stranger.infer("digits", INPUTS))
    async with EndpointClient(address, key=key, trust=pin) as application:
        await until_it_answers(lambda: application.infer("digits", INPUTS))
    await owner.keys.set_access("digits", EndpointAccess.TENANT)


async def until_it_answers(ask: Callable[[], Awaitable[object]]) -> None:
    """Nodes hear of who may ask within about a second."""
    async with asyncio.timeout(JOB_SECONDS):
        while True:
            try:
                await ask()
            except (NotFoundError, NotAllowedError):
                await asyncio.sleep(0.1)
            else:
                return


async def until_refused(ask: Callable[[], Awaitable[object]]) -> None:
    """The same the other way."""
    with contextlib.suppress(NotFoundError):
        async with asyncio.timeout(JOB_SECONDS):
            while True:
                await ask()
                await asyncio.sleep(0.1)


async def no_door_is_weak(state: Path) -> None:
    """Every encrypted door that there is: the broker's, and those of both inference servers."""
    addresses, token = read_addresses(state), read_token(state, "alice")
    async with Client(addresses["broker_tls"], token=token, trust=Trust(pin=addresses["pin"])) as client:
        told = [each for node in await client.list_nodes() for each in (node.serving_http, node.serving_grpc)]
    doors = {address for key, address in addresses.items() if key.endswith(("_tls", "_https", "_grpcs"))}
    doors |= {each.partition("://")[2] for each in told if each.startswith(("https://", "grpcs://"))}
    assert len(doors) == 8
    found = await asyncio.gather(*map(weaknesses_of, doors))
    assert dict(zip(doors, found, strict=True)) == {door: [] for door in doors}
    assert not await hears_strangers(addresses["nodes_tls"])
    assert await hears_strangers(addresses["broker_tls"])  # who has a token; it shows that this asks at all


async def another_authority_takes_over(state: Path, node: Path) -> None:
    """Nothing is started anew, and who asked before goes on asking."""
    before, token = read_addresses(state), read_token(state, "alice")
    pids = {folder: (folder / "serving.lock").read_text() for folder in (state / "agent", node / "agent")}
    async with Client(before["broker_tls"], token=token, trust=Trust(pin=before["pin"])) as client:
        await client.infer("digits", INPUTS)
        assert (await tiercel("authority", "rotate", state_dir=state)).exit_code == 0
        async with asyncio.timeout(JOB_SECONDS):
            while (shown := await tiercel("authority", "show", "--json", state_dir=state)).content["waiting"]:
                assert shown.exit_code == 0, shown.errors
        assert shown.content["earlier_pin"] == before["pin"]
        await client.infer("digits", INPUTS)
    refused = await tiercel("authority", "finish", state_dir=state)
    assert refused.exit_code == 1
    assert "good for a day" in refused.errors
    finished = await tiercel("authority", "finish", "--force", state_dir=state)
    assert finished.exit_code == 0, finished.errors
    async with asyncio.timeout(JOB_SECONDS):
        while read_addresses(state)["pin"] != shown.content["pin"]:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.1)
        # Both inference servers look at their files every few seconds.
        while not await answers(state):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        # So does the broker's own, of which whoever knows the new pin may have been answered by the other one.
        while not await the_brokers_own_has_the_new_authority(state):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    await every_door_has_the_operators_name(state)
    assert await tells_versions(state) == (200, ["1"])
    assert pids == {folder: (folder / "serving.lock").read_text() for folder in pids}


async def answers(state: Path) -> bool:
    """Whether a tenant who knows the new pin is answered."""
    addresses, token = read_addresses(state), read_token(state, "alice")
    async with Client(addresses["broker_tls"], token=token, trust=Trust(pin=addresses["pin"])) as client:
        try:
            return bool((await client.infer("digits", INPUTS)).outputs)
        except UnavailableError:
            return False


async def the_brokers_own_has_the_new_authority(state: Path) -> bool:
    doors = [read_addresses(state)[key] for key in ("serving_https", "serving_grpcs")]
    return {await is_called(door, OWN_NAME, state / "authority.pem") for door in doors} == {"is"}


async def tells_versions(state: Path) -> tuple[int, list[str]]:
    """What the broker's own node says of the model on the other one, whom it asks by TLS."""
    status, content = await get_json(f"http://{read_addresses(state)['serving_http']}/v2/models/digits")
    return status, content.get("versions", [])


async def every_door_has_the_operators_name(state: Path) -> None:
    """Whoever checks names and knows nothing of Tiercel, by the authority's file alone: the name, and the address."""
    addresses = read_addresses(state)
    doors = {key: addresses[key] for key in addresses if key.endswith(("_tls", "_https", "_grpcs"))}
    assert len(doors) == 6
    for called in (OWN_NAME, WIDE):
        found = await asyncio.gather(*(is_called(door, called, state / "authority.pem") for door in doors.values()))
        assert dict(zip(doors, found, strict=True)) == dict.fromkeys(doors, "is")
    other = await is_called(addresses["serving_https"], "other.example", state / "authority.pem")
    assert "other.example" in other
    status = await told_status(addresses["serving_https"], OWN_NAME, state / "authority.pem")
    assert status == 200


async def is_called(door: str, name: str, authority: Path) -> str:
    """What a client that checks the name says to whom it finds there: "is", or why not."""
    host, port = split_address(door)
    context = ssl.create_default_context(cafile=authority)
    context.set_alpn_protocols(["h2", "http/1.1"])
    try:
        _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
    except ssl.SSLCertVerificationError as error:
        return str(error)
    writer.close()
    return "is"


async def the_brokers_own_node_answers(state: Path) -> None:
    """Asked by a tenant elsewhere, by TLS."""
    identity = state / "agent" / "serving-identity.pem"
    assert identity.stat().st_mode & 0o777 == 0o600
    addresses, token = read_addresses(state), read_token(state, "bob")
    async with Client(addresses["broker_tls"], token=token, trust=Trust(pin=addresses["pin"])) as client:
        job = await client.submit(digits_job("near", targets=(0.3,)))
        finished = await job.wait(JOB_SECONDS)
        assert finished.state is JobState.COMPLETED, finished.reason
        assert len((await client.infer("near", INPUTS)).outputs) == 1
    listed = await tiercel("endpoints", "--json", state_dir=state, tenant="bob")
    assert f"https://{SHOWN}" in listed.output
    # On its own machine, too: a tenant there asks where it is told.
    said = await tiercel("infer", "near", state_dir=state, tenant="bob", text=json.dumps(INPUTS))
    assert said.exit_code == 0, said.errors
