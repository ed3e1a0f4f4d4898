"""``tiercel join`` up to where the agent would start."""

from __future__ import annotations

import asyncio
import json
import stat
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from testing.brokers import running_broker
from testing.membership import WIDE, open_as, operator_of
from testing.scripted_agent import ScriptedAgent
from testing.small_disk import fill, small_disk
from tiercel.broker.cli.up import packages
from tiercel.broker.cli.up.joined import joined_as, run_join, run_node
from tiercel.broker.cli.up.options import NodeOptions, UpOptions
from tiercel.broker.cli.up.run import run_up
from tiercel.broker.client.audit import read_audit
from tiercel.broker.client.membership import create_join_token
from tiercel.broker.client.state_dir import read_broker
from tiercel.broker.server import Broker
from tiercel.core.audit import AuditRow, calls_of
from tiercel.core.errors import InvalidSpecError, NotAuthenticatedError, UnavailableError
from tiercel.core.locks import take
from tiercel.core.trust.certificates import Identity, node_of
from tiercel.core.trust.join_token import JoinToken
from tiercel.core.trust.trust import Trust


async def test_the_same_line_once_more_is_nothing_new_and_on_another_machine_refused(tmp_path: Path) -> None:
    node, other = (NodeOptions(state_dir=tmp_path / name, node_id=name) for name in ("n2", "n3"))
    async with running_broker(tmp_path / "b", listen=WIDE) as broker:
        async with operator_of(broker, tmp_path / "b") as operator:
            line = await create_join_token(operator, "", 60.0)
        token = JoinToken.parse(line.token)
        assert await run_join(line.address, token, node)
        assert not await run_join(line.address, token, node)
        with pytest.raises(NotAuthenticatedError, match="was used already"):
            await run_join(line.address, token, other)
        assert (joined_as(node.state_dir), joined_as(other.state_dir)) == ("n2", "")
        identity = node.state_dir / "agent" / "identity.pem"
        assert node_of(Identity.from_file(identity.read_bytes()).certificate) == "n2"
        open_to_others = [
            path for path in (node.state_dir, *node.state_dir.rglob("*")) if stat.S_IMODE(path.stat().st_mode) & 0o077
        ]
        assert [path.name for path in open_to_others] in ([], ["addresses.json"])
        addresses = json.loads((node.state_dir / "addresses.json").read_text())
        assert addresses["nodes"] == broker.addresses["nodes_tls"]
        assert read_broker(node.state_dir) == (line.address, Trust(pin=broker.addresses["pin"]))
        with pytest.raises(InvalidSpecError, match="joined a broker elsewhere"):
            await run_up(options_of_a_broker(node.state_dir))
        assert token.secret not in "".join(path.read_text() for path in tmp_path.glob("n2/*.json"))


async def test_a_line_is_not_used_up_where_the_inference_server_could_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = NodeOptions(state_dir=tmp_path / "n2", node_id="n2")
    async with running_broker(tmp_path / "b", listen=WIDE) as broker:
        async with operator_of(broker, tmp_path / "b") as operator:
            line = await create_join_token(operator, "", 60.0)
        token = JoinToken.parse(line.token)
        with monkeypatch.context() as without:
            without.setattr(packages, "SERVING", ("no_such_package",))
            with pytest.raises(UnavailableError, match=r"no_such_package.*pip install 'tiercel\[serve\]'"):
                await run_join(line.address, token, node)
        assert not node.state_dir.exists()
        assert await run_join(line.address, token, node)


async def test_a_line_that_came_while_the_disk_was_full_is_good_once_there_is_room(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "b", listen=WIDE) as broker:
        async with operator_of(broker, tmp_path / "b") as operator:
            line = await create_join_token(operator, "", 60.0)
        with small_disk(tmp_path / "n2", 512 * 1024) as folder:
            node = NodeOptions(state_dir=folder, node_id="n2")
            filler = fill(folder)
            with pytest.raises(InvalidSpecError, match="No space left"):
                await run_join(line.address, JoinToken.parse(line.token), node)
            filler.unlink()
            assert await run_join(line.address, JoinToken.parse(line.token), node)
            assert joined_as(folder) == "n2"
            assert sorted(path.name for path in (folder / "agent").iterdir()) == ["authority.pem", "identity.pem"]


async def test_a_folder_whose_agent_runs_joins_by_no_other_name(tmp_path: Path) -> None:
    node, other = (NodeOptions(state_dir=tmp_path / "n2", node_id=name) for name in ("n2", "n3"))
    async with running_broker(tmp_path / "b", listen=WIDE) as broker:
        async with operator_of(broker, tmp_path / "b") as operator:
            lines = [await create_join_token(operator, "", 60.0) for _ in range(2)]
        first, second = (JoinToken.parse(line.token) for line in lines)
        assert await run_join(lines[0].address, first, node)
        with take(node.state_dir / "agent" / "agent.lock", "n2"):
            with pytest.raises(InvalidSpecError, match=r"the agent of node n2 runs in .*tiercel down"):
                await run_join(lines[1].address, second, other)
            assert joined_as(node.state_dir) == "n2"
        assert await run_join(lines[1].address, second, other)  # which is not used up
        assert joined_as(node.state_dir) == "n3"


def options_of_a_broker(folder: Path) -> UpOptions:
    return UpOptions(
        state_dir=folder,
        node_id="local",
        broker_port=0,
        nodes_port=0,
        mqtt_port=0,
        mqtt_url="",
        policy="",
        tenants=("default",),
    )


async def test_a_brokers_own_folder_joins_nobody_and_what_did_not_join_does_not_start(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "b", listen=WIDE) as broker:
        token = JoinToken.draw(broker.addresses["pin"])
        with pytest.raises(InvalidSpecError, match="a broker of its own is in it"):
            await run_join(broker.addresses["broker_tls"], token, NodeOptions(state_dir=tmp_path / "b", node_id="n2"))
    with pytest.raises(InvalidSpecError, match="did not join as 'n2'"):
        await run_node(NodeOptions(state_dir=tmp_path / "n2", node_id="n2"))


async def outcomes_of_joins(broker: Broker, state_dir: Path) -> list[str]:
    async with operator_of(broker, state_dir) as operator:
        rows = calls_of([row async for row in read_audit(operator) if isinstance(row, AuditRow)])
    return [row.outcome for row in rows if row.method == "MembershipService.Join"]


async def test_whose_answer_was_lost_joins_by_the_same_line_and_nobody_else_does(tmp_path: Path) -> None:
    node, other = (NodeOptions(state_dir=tmp_path / name, node_id="n2") for name in ("n2", "other"))
    async with running_broker(tmp_path / "b", listen=WIDE) as broker:
        async with operator_of(broker, tmp_path / "b") as operator:
            line = await create_join_token(operator, "", 60.0)
        token, identity = JoinToken.parse(line.token), node.state_dir / "agent" / "identity.pem"
        identity.mkdir(parents=True)  # the broker lets it in, and what it answers finds no place
        with pytest.raises(InvalidSpecError, match="directory"):
            await run_join(line.address, token, node)
        identity.rmdir()
        with pytest.raises(NotAuthenticatedError, match="was used already"):  # with a key of its own
            await run_join(line.address, token, other)
        with pytest.raises(NotAuthenticatedError, match="was used already"):  # with the key, by another name
            await run_join(line.address, token, replace(node, node_id="n3"))
        assert await run_join(line.address, token, node)
        assert joined_as(node.state_dir) == "n2"
        assert sorted(path.name for path in identity.parent.iterdir()) == ["authority.pem", "identity.pem"]
        agent = ScriptedAgent(
            "", "n2", open_channel=partial(open_as, identity=Identity.from_file(identity.read_bytes()))
        )
        async with agent.connected(broker.addresses["nodes_tls"]):
            assert agent.ending is None
        # What became of a call is written behind its answer.
        async with asyncio.timeout(60):
            while "unknown" in (asked := await outcomes_of_joins(broker, tmp_path / "b")):  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.01)
        assert asked == ["done", "not_authenticated", "not_authenticated", "done"]
