"""Copies of versions on a node: checked before they are in place, and tried again while they are wanted."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from testing.until import until
from tiercel.core.backoff import Backoff
from tiercel.trainer_agent.connection.pace import Pace
from tiercel.trainer_agent.connection.parcels import Parcels
from tiercel.trainer_agent.deliveries import copies as module
from tiercel.trainer_agent.deliveries.copies import PlacedFiles, VersionCopies
from tiercel.trainer_agent.models.repository import ModelRepository
from tiercel.trainer_agent.models.served import ServedModels, WantedVersions
from tiercel.trainer_agent.models.variants import Place
from tiercel.trainer_agent.supervision import Supervisor

MODEL = b"a model"
SHA256 = hashlib.sha256(MODEL).hexdigest()
PLACE = Place("digits")
WANTED = PlacedFiles(PLACE, 3, SHA256)


class Broker:
    """Gives out files, the next of several answers each time, and takes some in."""

    def __init__(self) -> None:
        self.answers: list[dict[str, bytes] | OSError] = []
        self.sent: list[dict[str, bytes]] = []
        self.fetches = 0
        self.found: list[list[str]] = []  # what was there already, each time
        self.pace: Callable[[], Pace | None] = lambda: None

    async def fetch(
        self, _request: object, place: Path, check_room: Callable[[int], None], pace: Callable[[], Pace | None]
    ) -> None:
        self.fetches += 1
        self.pace = pace
        if not self.answers:
            place.mkdir(parents=True, exist_ok=True)
            await asyncio.Event().wait()  # the rest is on its way
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, OSError):
            place.mkdir(parents=True)
            (place / "model.onnx").write_bytes(MODEL[:2])
            raise answer
        check_room(sum(map(len, answer.values())))
        place.mkdir(parents=True, exist_ok=True)
        self.found.append([path.name for path in place.iterdir()])
        for name, content in answer.items():
            (place / name).write_bytes(content)

    async def send(self, _header: object, files: list[Any], _pace: object) -> None:
        self.sent.append({file.path.name: file.path.read_bytes() for file in files})


class Loader:
    """An inference server that says of what it was told to answer with what it should."""

    async def load(self, model: str, version: int | None = None) -> str:
        return SHA256

    async def unload(self, model: str) -> None:
        pass


class Node:
    """What copies are made of on a node."""

    def __init__(self, folder: Path, tasks: Supervisor, reserve_bytes: int) -> None:
        self.repository = ModelRepository(folder / "models")
        self.repository.path.mkdir(exist_ok=True)
        self.broker = Broker()
        self.changes = 0
        self.copies = VersionCopies(cast("Parcels", self.broker), self.repository, tasks, self._changed, reserve_bytes)
        self.served = ServedModels(self.repository, Loader(), tasks, in_place=self.copies.note_in_place)

    def _changed(self) -> None:
        self.changes += 1

    def told(self) -> list[tuple[int, str, str]]:
        return [(each.version, each.sha256, each.reason) for each in self.copies.statuses()]


@pytest.fixture
async def tasks(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Supervisor]:
    monkeypatch.setattr(module, "_PAUSES", Backoff(0.01, 0.02))
    async with Supervisor() as supervisor:
        yield supervisor
        supervisor.cancel_all()


async def test_a_copy_is_fetched_until_it_is_what_it_should_be_and_nothing_else_is_left(
    tmp_path: Path, tasks: Supervisor
) -> None:
    node = Node(tmp_path, tasks, reserve_bytes=0)
    node.broker.answers = [
        {"model.onnx": b"another"},
        {"model.onnx": MODEL, "run.sh": b"#!/bin/sh"},
        {"reference.npz": b""},
        OSError(28, "No space left on device"),
        {"model.onnx": MODEL, "reference.npz": b"r", "accuracy.json": b"{}"},
    ]
    node.copies.want({WANTED}, (), node.served)
    await until(lambda: node.told() == [(3, SHA256, "")])
    assert node.broker.fetches == 5
    assert sorted(path.name for path in node.repository.version("digits", 3).iterdir()) == [
        "accuracy.json",
        "model.onnx",
        "reference.npz",
    ]
    assert list(node.repository.staged("x").parent.iterdir()) == []
    assert json.loads((node.repository.path / "digits" / "live.json").read_text())["version"] == 0, "it waits"


async def test_a_copy_whose_files_went_is_fetched_again(tmp_path: Path, tasks: Supervisor) -> None:
    node = Node(tmp_path, tasks, reserve_bytes=0)
    node.broker.answers = [{"model.onnx": MODEL}, {"model.onnx": MODEL}]
    node.copies.want({WANTED}, (), node.served)
    await until(lambda: node.told() == [(3, SHA256, "")])
    node.served.want({PLACE: WantedVersions(3, frozenset({3}))}, ())
    await until(lambda: node.served.answering == {PLACE: 3})
    shutil.rmtree(node.repository.version("digits", 3))
    await node.served.look()
    assert "not on this node any more" in node.served.problems[PLACE]
    await until(lambda: node.told() == [(3, SHA256, "")])
    await node.served.look()
    await until(lambda: not node.served.problems)


async def test_a_disk_without_room_is_said_once_and_no_longer_wanted_copies_are_left_alone(
    tmp_path: Path, tasks: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(tmp_path, tasks, reserve_bytes=2**62)
    node.broker.answers = [{"model.onnx": MODEL}]
    node.copies.want({WANTED}, (), node.served)
    await until(node.told)
    ((version, sha256, reason),) = node.told()
    assert (version, sha256) == (3, "")
    assert "no room" in reason
    await until(lambda: node.broker.fetches >= 3)
    assert [reason in each.message for each in caplog.records] == [True]
    node.copies.want((), (), node.served)
    assert node.told() == []
    fetches = node.broker.fetches
    await asyncio.sleep(0.1)
    assert node.broker.fetches == fetches


async def test_a_version_is_sent_once_and_again_to_the_next_broker(tmp_path: Path, tasks: Supervisor) -> None:
    node = Node(tmp_path, tasks, reserve_bytes=0)
    staged = node.repository.staged("j-tier-1")
    staged.mkdir(parents=True)
    (staged / "model.onnx").write_bytes(MODEL)
    files = PlacedFiles(PLACE, 3, SHA256, "j-tier-1")
    for _ in range(2):
        node.copies.want((), {files}, node.served)
        await until(lambda: node.broker.sent and not node.copies._under_way)
    assert node.broker.sent == [{"model.onnx": MODEL}]
    node.copies.begin_anew()
    node.copies.want((), {files}, node.served)
    await until(lambda: len(node.broker.sent) == 2)


async def test_what_an_earlier_life_has_put_in_place_is_told_until_it_is_removed(
    tmp_path: Path, tasks: Supervisor
) -> None:
    first = Node(tmp_path, tasks, reserve_bytes=0)
    first.broker.answers = [{"model.onnx": MODEL}]
    first.copies.want({WANTED}, (), first.served)
    await until(lambda: first.told() == [(3, SHA256, "")])
    again = VersionCopies(cast("Parcels", first.broker), first.repository, tasks, lambda: None)
    await again.open()
    assert [(each.version, each.sha256) for each in again.statuses()] == [(3, SHA256)]
    served = ServedModels(first.repository, Loader(), tasks, in_place=again.note_in_place)
    served.want({PLACE: WantedVersions(0, frozenset())}, ())
    await until(lambda: again.statuses() == [])
    assert not first.repository.version("digits", 3).exists()


async def test_what_has_come_of_a_copy_or_a_deployed_file_stays_where_its_agent_is_stopped(
    tmp_path: Path, tasks: Supervisor
) -> None:
    node = Node(tmp_path, tasks, reserve_bytes=0)
    deployed = PlacedFiles(PLACE, 3, SHA256, "d-1")
    node.copies.want({WANTED}, (), node.served)
    fetching = asyncio.create_task(node.copies.fetch(deployed, "d-1"))
    await until(lambda: node.broker.fetches == 2)
    for place in node.repository.staging.iterdir():
        (place / "model.onnx").write_bytes(MODEL[:2])
    node.copies.want((), (), node.served)
    fetching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await fetching
    again = Node(tmp_path, tasks, reserve_bytes=0)
    again.repository.remove_staged_except(set())
    await again.copies.parts.drop_left()
    assert [path.read_bytes() for path in again.repository.staging.glob("*/model.onnx")] == [MODEL[:2]] * 2
    again.broker.answers = [{"model.onnx": MODEL}]
    await again.copies.fetch(deployed, "d-1")
    assert again.broker.found == [["model.onnx"]]
    assert (again.repository.staged("d-1") / "model.onnx").read_bytes() == MODEL
    assert len(list(again.repository.staging.iterdir())) == 2


async def test_a_copy_takes_its_time_from_when_nobody_waits_for_it(tmp_path: Path, tasks: Supervisor) -> None:
    node, pace = Node(tmp_path, tasks, reserve_bytes=0), Pace()
    copies = VersionCopies(cast("Parcels", node.broker), node.repository, tasks, lambda: None, fetching=pace)
    copies.want({WANTED}, (), node.served)
    await until(lambda: node.broker.fetches)
    assert node.broker.pace() is None
    copies.want({WANTED}, (), node.served, {WANTED})
    assert node.broker.pace() is pace
    assert node.broker.fetches == 1


async def test_a_copy_of_a_variant_is_put_in_its_place_and_told_of(tmp_path: Path, tasks: Supervisor) -> None:
    node = Node(tmp_path, tasks, reserve_bytes=0)
    node.broker.answers = [{"model.onnx": MODEL, "accuracy.json": b"{}"}]
    place = Place("digits", "small")
    node.copies.want({PlacedFiles(place, 3, SHA256)}, (), node.served)
    await until(lambda: node.told() == [(3, SHA256, "")])
    assert (node.repository.version(place.model, 3) / "model.onnx").read_bytes() == MODEL
    node.served.want({place: WantedVersions(3, frozenset({3}))}, ())
    await until(lambda: node.served.answering == {place: 3})
