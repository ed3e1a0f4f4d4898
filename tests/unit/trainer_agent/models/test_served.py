"""What the broker wants of models, put in force in a real repository before an inference server that the test plays."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testing.until import until
from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.models.record import ModelRecord
from tiercel.trainer_agent.models.repository import ModelRepository
from tiercel.trainer_agent.models.served import ServedModels, WantedVersions
from tiercel.trainer_agent.models.variants import Place
from tiercel.trainer_agent.supervision import Supervisor

DIGITS, SMALL = Place("digits"), Place("digits", "small")


def sha(version: int) -> str:
    return hashlib.sha256(str(version).encode()).hexdigest()


class Node:
    """The agent's part, with an inference server that reads the folders as the real one does."""

    def __init__(self, folder: Path, tasks: Supervisor) -> None:
        self.tasks, self.repository = tasks, ModelRepository(folder)
        self.answering: dict[str, str] = {}
        self.asked: list[str] = []
        self.refused: set[str] = set()
        self.begin()

    def begin(self) -> None:
        """The agent's next life."""
        self.served = ServedModels(self.repository, self, self.tasks)

    async def load(self, model: str, version: int | None = None) -> str:
        self.asked.append(f"load {model}" + (f" {version}" if version else ""))
        if model == "digits" and (self.repository.path / "digits" / "variants.json").exists():
            return ""
        record = self.repository.record(model)
        assert record is not None
        sha256 = record.versions.get(version or record.live, "")
        if sha256 in self.refused or not sha256:
            raise DeliveryFailedError("no good")
        self.answering[model] = sha256
        return sha256

    async def unload(self, model: str) -> None:
        self.asked.append(f"unload {model}")
        self.answering.pop(model, None)

    async def deliver(self, version: int, place: Place = DIGITS, *, answers: bool = True) -> None:
        staged = self.repository.staged("d")
        staged.mkdir(parents=True)
        (staged / "model.onnx").write_text(str(version))
        await self.served.deliver("d", place, version, sha(version), answers=answers)

    async def want(self, version: int, *kept: int, place: Place = DIGITS) -> None:
        wanted = {place: WantedVersions(version, frozenset(kept))}
        self.served.want(wanted, ())
        await until(lambda: self.served._in_force.get(place) == wanted[place] or self.served.problems)

    def record(self, place: Place = DIGITS) -> ModelRecord | None:
        return self.repository.record(place.model)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with Supervisor() as tasks:
        yield Node(tmp_path, tasks)
        tasks.cancel_all()


async def test_what_is_kept_does_not_answer_and_what_is_live_does(node: Node) -> None:
    await node.deliver(1)
    await node.deliver(2, answers=False)
    assert (node.answering, node.record()) == ({"digits": sha(1)}, ModelRecord(1, {1: sha(1), 2: sha(2)}))
    assert node.asked == ["load digits"]


async def test_a_first_version_that_is_kept_answers_to_nobody_after_a_restart(node: Node) -> None:
    await node.deliver(2, answers=False)
    assert (node.answering, node.record()) == ({}, ModelRecord(0, {2: sha(2)}))


async def test_the_version_that_is_wanted_is_brought_back_by_its_number_and_stays(node: Node) -> None:
    await node.deliver(1)
    await node.deliver(2)
    await node.want(1, 1, 2)
    assert (node.answering["digits"], node.record()) == (sha(1), ModelRecord(1, {1: sha(1), 2: sha(2)}))
    assert node.asked[-1] == "load digits 1"
    node.begin()
    await node.want(1, 1, 2)
    assert node.asked[-1] == "load digits", (
        "the server may have gone back by itself, which a restart is no reason to undo"
    )
    asked = len(node.asked)
    await node.want(1, 1, 2)
    assert len(node.asked) == asked


async def test_what_is_old_by_now_undoes_no_delivery(node: Node) -> None:
    await node.deliver(1)
    await node.want(1, 1)
    await node.deliver(2)
    node.served.want({DIGITS: WantedVersions(1, frozenset({1}))}, {DIGITS})
    assert not node.served._busy
    await node.want(2, 1, 2)
    assert (node.answering["digits"], node.served.problems) == (sha(2), {})


async def test_a_delivery_that_is_refused_leaves_what_answered(node: Node) -> None:
    await node.deliver(1)
    node.refused.add(sha(2))
    with pytest.raises(DeliveryFailedError, match="no good"):
        await node.deliver(2)
    await node.served.withdraw("d", DIGITS, 2)
    assert (node.answering["digits"], node.record()) == (sha(1), ModelRecord(1, {1: sha(1)}))


async def test_a_file_that_somebody_else_has_loaded_under_the_name_is_no_delivery(node: Node) -> None:
    class Deaf(Node):
        async def load(self, model: str, version: int | None = None) -> str:
            return sha(9)

    deaf = Deaf(node.repository.path, node.tasks)
    with pytest.raises(DeliveryFailedError, match=r"somebody else has loaded .*models/digits/unload\) and try again"):
        await deaf.deliver(1)
    assert deaf.record() == ModelRecord(0, {1: sha(1)})


async def test_what_cannot_be_put_in_force_is_told_and_tried_again(node: Node) -> None:
    await node.deliver(1)
    await node.deliver(2)
    node.refused.add(sha(1))
    await node.want(1, 1, 2)
    assert node.served.problems == {DIGITS: "no good"}
    assert (node.answering["digits"], node.record()) == (sha(2), ModelRecord(2, {1: sha(1), 2: sha(2)}))
    node.refused.clear()
    node.served.want({DIGITS: WantedVersions(1, frozenset({1, 2}))}, ())
    await until(lambda: not node.served.problems)
    assert node.answering["digits"] == sha(1)
    await node.want(7, 1, 2)
    assert node.served.problems == {DIGITS: "The files of version 7 are not on this node any more."}
    node.served.want({}, ())
    assert not node.served.problems


async def test_files_that_are_gone_are_told_of_while_what_is_loaded_answers_and_back_they_are_no_problem(
    node: Node,
) -> None:
    heard: dict[int, str] = {}
    node.served = ServedModels(node.repository, node, node.tasks, in_place=lambda _, there: heard.update(there))
    await node.deliver(1)
    await node.want(1, 1)
    await node.served.look()
    assert (node.served.problems, heard) == ({}, {1: sha(1)})
    folder = node.repository.version("digits", 1)
    folder.rename(folder.with_name("elsewhere"))
    heard.clear()
    await node.served.look()
    assert heard == {}
    gone = "The files of version 1 are not on this node any more."
    memory = "It answers from memory until the inference server is started again."
    assert node.served.problems == {DIGITS: f"{gone} {memory}"}
    # The next life of the agent does not take the record's word for it, and touches nothing of what answers.
    node.begin()
    node.asked.clear()
    assert node.repository.there() == {"digits": {}}
    await node.want(1, 1)
    assert (node.served.problems, node.asked) == ({DIGITS: gone}, [])
    folder.with_name("elsewhere").rename(folder)
    await node.served.look()
    await until(lambda: not node.served.problems)
    assert node.asked == ["load digits"]


async def test_an_endpoint_that_has_moved_answers_no_more_and_files_that_nobody_keeps_go(node: Node) -> None:
    await node.deliver(1)
    await node.want(0, 1)
    assert (node.answering, node.record()) == ({}, ModelRecord(0, {1: sha(1)}))
    await node.want(0)
    assert not (node.repository.path / "digits").exists()


async def test_a_variant_that_has_moved_leaves_the_others(node: Node) -> None:
    large = Place("digits", "large")
    await node.deliver(1, SMALL)
    await node.deliver(2, large)
    await node.want(0, 1, place=SMALL)
    assert node.answering == {large.model: sha(2)}
    listed = (node.repository.path / "digits" / "variants.json").read_text()
    assert (large.model in listed, SMALL.model in listed) == (True, False)


async def test_models_of_others_and_what_the_broker_does_not_name_are_left_alone(node: Node) -> None:
    theirs = node.repository.version("digits", 1)
    theirs.mkdir(parents=True)
    await node.want(0)
    assert theirs.is_dir()
    assert node.asked == []
    await node.want(1, 1)
    assert node.served.problems == {DIGITS: "The files of version 1 are not on this node any more."}
    assert node.asked == []


async def test_the_inference_server_hears_of_a_model_that_has_no_files_any_more(node: Node) -> None:
    large = Place("digits", "large")
    await node.deliver(1, SMALL)
    await node.deliver(2, large)
    node.asked.clear()
    await node.want(0, place=SMALL)
    assert node.asked[-1] == f"unload {SMALL.model}"
    node.asked.clear()
    await node.want(0, place=large)
    assert node.asked[-2:] == [f"unload {large.model}", "unload digits"]
    assert not list(node.repository.path.glob("*/[1-9]*"))
