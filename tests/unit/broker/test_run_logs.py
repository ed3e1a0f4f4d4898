"""Output of runs: appended by offset, bounded, and never outside of its folder."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from testing.small_disk import fill, small_disk
from tiercel.broker.store.logs import RunLogs
from tiercel.core.errors import LeaseLostError
from tiercel.core.kept_output import HEAD_BYTES


@pytest.fixture
def logs(tmp_path: Path) -> RunLogs:
    return RunLogs(tmp_path / "logs")


async def test_output_is_put_together(logs: RunLogs) -> None:
    await logs.append("j1-1", 0, b"one ")
    await logs.append("j1-1", 4, b"two")
    assert logs.read("j1-1", 0) == (0, b"one two")
    assert logs.read("j1-1", 4) == (4, b"two")
    assert [logs.read(run_id, at)[1] for run_id, at in (("j1-1", 7), ("j1-1", 2**64 - 1), ("j1-2", 0))] == [b""] * 3
    assert (logs.size("j1-1"), logs.size("j1-2")) == (7, 0)


async def test_what_is_there_is_not_written_twice(logs: RunLogs) -> None:
    await logs.append("j1-1", 0, b"one ")
    await logs.append("j1-1", 0, b"one ")
    await logs.append("j1-1", 2, b"e two")
    await logs.append("j1-1", 1, b"n")
    assert logs.read("j1-1", 0) == (0, b"one two")


async def test_a_gap_is_not_taken(logs: RunLogs) -> None:
    await logs.append("j1-1", 5, b"late")
    assert logs.size("j1-1") == 0


async def test_of_output_without_end_the_beginning_and_the_end_are_kept(logs: RunLogs, tmp_path: Path) -> None:
    mib = 1024**2
    for number in range(40):
        await logs.append("j1-1", number * mib, bytes([number]) * mib)
    assert logs.size("j1-1") == 40 * mib
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) <= 19 * mib
    kept, offset = {}, 0
    while (found := logs.read("j1-1", offset))[1]:
        kept[found[0]] = found[1]
        offset = found[0] + len(found[1])
    assert all(data == bytes([begin // mib]) * len(data) for begin, data in kept.items())
    assert set(range(8)) | set(range(32, 40)) <= {begin // mib for begin in kept}
    assert 20 not in {begin // mib for begin in kept}


async def test_what_a_node_has_not_kept_is_a_gap_behind_the_beginning(logs: RunLogs) -> None:
    await logs.append("j1-1", 0, b"x" * HEAD_BYTES)
    await logs.append("j1-1", HEAD_BYTES + 100, b"after")
    await logs.append("j1-1", HEAD_BYTES + 103, b"er that")
    assert logs.read("j1-1", HEAD_BYTES) == (HEAD_BYTES + 100, b"after that")
    await logs.append("j1-1", HEAD_BYTES + 5, b"late")  # it was said that nobody has it
    for number in range(1000):  # a node that makes gaps on purpose
        await logs.append("j1-1", HEAD_BYTES + 1000 + 2 * number, b"x")
    assert logs.read("j1-1", HEAD_BYTES)[0] > HEAD_BYTES + 2000
    await logs.append("j1-1", 2**63, b"far")
    assert logs.size("j1-1") == HEAD_BYTES + 2999


@pytest.mark.parametrize("run_id", ["", "../evil-1", "a/b-1", "j1", "j1-1/../../x", "J1-1", "j1-1\n", "x" * 50 + "-1"])
async def test_what_is_no_run_names_no_file(logs: RunLogs, tmp_path: Path, run_id: str) -> None:
    await logs.append(run_id, 0, b"data")
    assert (logs.read(run_id, 0), logs.size(run_id)) == ((0, b""), 0)
    assert [path.name for path in tmp_path.rglob("*")] == ["logs"]


async def test_it_outlives_the_broker(logs: RunLogs, tmp_path: Path) -> None:
    await logs.append("j1-1", 0, b"one ")
    again = RunLogs(tmp_path / "logs")
    await again.append("j1-1", 4, b"two")
    assert again.read("j1-1", 0) == (0, b"one two")


async def test_waiting_ends_when_there_is_more(logs: RunLogs) -> None:
    waiting = asyncio.ensure_future(logs.wait_grown("j1-1", 0, 20.0))
    await asyncio.sleep(0)
    await logs.append("j1-2", 0, b"another run")
    await asyncio.sleep(0)
    assert not waiting.done()
    await logs.append("j1-1", 0, b"x")
    await waiting
    await logs.wait_grown("j1-1", 1, 0.01)


async def test_output_that_a_full_disk_does_not_take_is_asked_for_again_when_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 4 * 1024 * 1024) as disk:
        logs = RunLogs(disk / "logs")
        filler = fill(disk)
        lines = b"".join(b"%07d\n" % number for number in range(16_384))
        await logs.append("j1-1", 0, lines[:65_536])
        await logs.append("j1-1", 65_536, lines[65_536:])  # nothing breaks, nothing is waited for
        assert logs.size("j1-1") < 65_536
        filler.unlink()
        with pytest.raises(LeaseLostError, match=r"output of run j1-1 .* connect again"):
            await logs.append("j1-1", len(lines), b"more")
        await logs.append("j1-1", logs.size("j1-1"), lines[logs.size("j1-1") :])
        assert b"".join(logs.read("j1-1", begin)[1] for begin in (0, 65_536)) == lines
