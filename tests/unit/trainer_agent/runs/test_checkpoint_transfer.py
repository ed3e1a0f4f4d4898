"""Checkpoints that come from another node: what has come of one is there when its agent is restarted."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import cast

import pytest

from testing.until import until
from tiercel.trainer_agent.connection.calls import BrokerCalls
from tiercel.trainer_agent.connection.parcels import Parcels
from tiercel.trainer_agent.disk.job_folder import JobFolder
from tiercel.trainer_agent.disk.parts import Parts
from tiercel.trainer_agent.runs.checkpoint_transfer import CheckpointTransfer


async def test_what_has_come_of_one_is_there_for_the_next_run_of_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[Path] = []

    async def fetch(_: Parcels, request: object, place: Path) -> list[Path]:
        del request
        places.append(place)
        if len(places) == 1:
            place.mkdir(parents=True)
            (place / "latest.pt").write_bytes(b"begun")
            await asyncio.Event().wait()
        return [place / "latest.pt"]

    monkeypatch.setattr(Parcels, "fetch", fetch)
    folder = JobFolder(tmp_path / "jobs" / "j1")
    folder.prepare(token="t", script=None, owner=None)

    def transfer() -> CheckpointTransfer:
        return CheckpointTransfer(cast("BrokerCalls", None), Parts(tmp_path / "carried", 100))

    fetching = asyncio.create_task(transfer().fetch("j1-2", folder, None))
    await until(lambda: bool(places))
    fetching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await fetching
    (tmp_path / "carried" / "j2-1").mkdir()
    again = transfer()
    again.clear()
    await again.fetch("j1-3", folder, None)
    assert places[0] == places[1]
    assert [path.read_bytes() for path in (folder.path / "checkpoints").iterdir()] == [b"begun"]
    assert list((tmp_path / "carried").iterdir()) == []
