"""A disk without room: what is known stays known in this life of the agent, and nothing else ends."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any, cast

import pytest

from testing.until import until
from tiercel.trainer_agent import main as agent_main
from tiercel.trainer_agent.deliveries import delivery_log as delivery_log_module
from tiercel.trainer_agent.deliveries.deliveries import Deliveries
from tiercel.trainer_agent.deliveries.delivery_log import DELIVERED, FAILED, STAGED, DeliveryLog, DeliveryLogEntry
from tiercel.trainer_agent.models.repository import ModelRepository
from tiercel.trainer_agent.models.served import ServedModels
from tiercel.trainer_agent.reports.run_log import RunLog
from tiercel.trainer_agent.supervision import Supervisor
from tiercel.v1 import nodes_pb2

ENTRY = DeliveryLogEntry("job-tier-1", STAGED, value=0.93, sha256="ab")
WANTED = nodes_pb2.WantedDelivery(
    delivery_id="job-tier-1",
    run_id="job-1",
    endpoint="line",
    version=1,
    metric="score",
    verdict=nodes_pb2.DELIVERY_VERDICT_LIVE,
)


class LoadsNothing:
    """An inference server that takes whatever it is told to load."""

    async def load(self, model: str, version: int | None = None) -> str:
        """It answers."""
        return ENTRY.sha256

    async def unload(self, model: str) -> None:
        """It answers no more."""


def fill_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, data: bytes) -> None:
        del path, data
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(delivery_log_module, "write_atomically", refuse)


def test_a_delivery_is_forgotten_and_the_next_life_forgets_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "deliveries.json"
    delivery_log = DeliveryLog(path)
    delivery_log.enter(ENTRY)
    fill_the_disk(monkeypatch)
    delivery_log.forget("job-tier-1")
    assert delivery_log.entries() == []
    assert DeliveryLog(path).entries() == [ENTRY]


@pytest.mark.parametrize(("files_are_there", "stage"), [(True, DELIVERED), (False, FAILED)])
async def test_how_a_delivery_ended_is_reported_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files_are_there: bool, stage: str
) -> None:
    delivery_log = DeliveryLog(tmp_path / "deliveries.json")
    delivery_log.enter(ENTRY)
    repository = ModelRepository(tmp_path / "models")
    if files_are_there:
        repository.staged("job-tier-1").mkdir(parents=True)
    heard: list[nodes_pb2.DeliveryStatus] = []
    async with Supervisor() as tasks:
        deliveries = Deliveries(
            delivery_log=delivery_log,
            repository=repository,
            runs=cast("Any", None),  # the model is here already
            served=ServedModels(repository, LoadsNothing(), tasks),
            fetch=cast("Any", None),
            report=heard.append,
            tasks=tasks,
        )
        fill_the_disk(monkeypatch)
        deliveries.start(WANTED)
        await until(lambda: not deliveries.under_way())
    assert heard[-1].stage == DeliveryLogEntry("", stage).status().stage
    assert deliveries.ended() == ["job-tier-1"]


def test_output_that_finds_no_room_is_not_kept() -> None:
    log = RunLog(Path("/dev/full"))
    log.append(b"never")
    assert log.size == 0


def test_an_agent_that_cannot_begin_says_where_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(agent_main, "configure", lambda *_, **__: None)
    place = tmp_path / "file" / "state"
    assert agent_main.main(["--state-dir", str(place), "--broker", "127.0.0.1:1", "--token-file", "token"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"The agent cannot use its state directory {place}: ")
    assert "Make room there" in said
    assert "--state-dir" in said
