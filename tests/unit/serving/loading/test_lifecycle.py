from __future__ import annotations

import asyncio
import hashlib
import shutil
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from testing import onnx_models
from testing.until import until
from tiercel.core.errors import (
    ArtefactRefusedError,
    InferenceFailedError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from tiercel.serving.canary_plan import plan_from
from tiercel.serving.dataplane import DataPlane
from tiercel.serving.descriptions import Descriptions
from tiercel.serving.dispatch.dispatcher import Dispatcher
from tiercel.serving.loading.lifecycle import Lifecycle
from tiercel.serving.loading.load_parameters import read_load_parameters
from tiercel.serving.loading.loader import BuildOptions, Loader
from tiercel.serving.models.registry import Registry
from tiercel.serving.models.repository import Artefact
from tiercel.serving.requests import InferRequest, InputTensor
from tiercel.serving.runtime import artefact_file, engine
from tiercel.serving.runtime.artefact_file import SealedFile
from tiercel.serving.runtime.measure import Batching
from tiercel.serving.runtime.workers import Workers
from tiercel.serving.tasks import StartTask
from tiercel.serving.tensors import BY_NAME
from tiercel.serving.verification import checks as verification
from tiercel.serving.verification.verdict import Verdict

MEGABYTE = 1024**2


class SameProcessVerifier:
    """The real checks without a process around them, and a gate that holds them up."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.began = asyncio.Event()
        self.asked: list[int] = []
        self.running = 0

    async def verify(self, artefact: Artefact, model: SealedFile, batch_rows: int, known: Batching | None) -> Verdict:
        self.asked.append(artefact.version)
        self.running += 1
        self.began.set()
        assert self.running == 1, "loads of one model must not overlap"
        await self.gate.wait()
        self.running -= 1
        return verification.verify(model.path, artefact.reference, MEGABYTE, batch_rows, known)


class Bench:
    """A lifecycle with everything it needs."""

    def __init__(self, root: Path, start: StartTask) -> None:
        self.root = root
        self.start = start
        self.registry = Registry()
        self.verifier = SameProcessVerifier()
        self.workers = Workers(1)
        self.executor = Dispatcher(self.workers, 10, MEGABYTE)
        options = BuildOptions(threads=1, inline_budget=0.0, max_model_bytes=MEGABYTE)
        self.loader = Loader(self.verifier, options)
        self.lifecycle = Lifecycle(root, self.registry, self.loader, self.start, look_seconds=0.0)
        self.plane = DataPlane(self.registry, self.executor, 30.0)

    @classmethod
    def beside(cls, other: Bench) -> Bench:
        """Another server on the same repository."""
        return cls(other.root, other.start)

    def close(self) -> None:
        """Let the threads go."""
        self.loader.close()
        self.executor.close()
        self.workers.close()

    def try_newer_versions(self, **parameters: object) -> None:
        """Have newer versions tried where a load says nothing of it, as a server does that is set so."""
        plan = plan_from(parameters)
        assert plan is not None
        self.lifecycle = Lifecycle(self.root, self.registry, self.loader, self.start, look_seconds=0.0, canary=plan)

    def put(self, version: int, content: bytes | None = None) -> None:
        onnx_models.put(self.root, "m", version, onnx_models.plus(version) if content is None else content)

    async def answer(self) -> tuple[str, float]:
        tensor = InputTensor("x", BY_NAME["FP32"], np.zeros((1, 4), np.float32))
        result = await self.plane.infer(InferRequest("m", "", [tensor]))
        return result.version, float(result.outputs[0].array[0, 0])

    async def load(self, **parameters: object) -> int:
        return await self.lifecycle.load("m", read_load_parameters(parameters))

    async def ask_until_it_is_over(self) -> list[str]:
        """Versions that answered until the trial ended."""
        answered: list[str] = []
        async with asyncio.timeout(90):
            while self.registry.record("m").trial is not None:
                answered.append((await self.answer())[0])
                await asyncio.sleep(0)
        return answered

    async def states(self) -> dict[str, str]:
        return {line["version"]: line["state"] for line in await self.lifecycle.index(only_ready=False)}


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with asyncio.TaskGroup() as group:
        bench = Bench(tmp_path, lambda work, name: group.create_task(work, name=name))
        yield bench
    bench.close()


async def test_a_load_takes_the_newest_version(bench: Bench) -> None:
    bench.put(1)
    bench.put(10)
    bench.put(9)
    assert await bench.lifecycle.load("m") == 10
    assert await bench.answer() == ("10", 10.0)


async def test_a_version_that_was_chosen_answers_also_after_a_restart(bench: Bench) -> None:
    for version in (1, 2, 3):
        bench.put(version)
    (bench.root / "m" / "live.json").write_text('{"version": 2}')
    assert await bench.lifecycle.load("m") == 2
    assert await bench.load(version=3) == 3, "who names a version gets it"
    again = Bench.beside(bench)
    await again.lifecycle.load_all()
    assert await again.answer() == ("2", 2.0)
    again.close()


async def test_an_older_version_answers_where_the_chosen_one_is_refused(bench: Bench) -> None:
    bench.put(1)
    bench.put(2, b"nonsense")
    bench.put(3)
    (bench.root / "m" / "live.json").write_text('{"version": 2}')
    await bench.lifecycle.load_all()
    assert await bench.answer() == ("1", 1.0)


async def test_a_model_of_which_none_shall_answer_is_not_loaded(bench: Bench) -> None:
    bench.put(1)
    (bench.root / "m" / "live.json").write_text('{"version": 0}')
    await bench.lifecycle.load_all()
    with pytest.raises(NotFoundError, match="is not loaded"):
        await bench.answer()
    with pytest.raises(
        NotFoundError, match=r"no version of model 'm' is to answer here, says its live\.json; name one"
    ):
        await bench.lifecycle.load("m")


@pytest.mark.parametrize("content", ["[", "[]", "{}", '{"version": "2"}', '{"version": true}', '{"version": -1}'])
async def test_a_choice_that_makes_no_sense_is_none(bench: Bench, content: str) -> None:
    bench.put(1)
    bench.put(2)
    (bench.root / "m" / "live.json").write_text(content)
    assert await bench.lifecycle.load("m") == 2


async def test_whoever_loads_a_version_can_tell_which_file_answers(bench: Bench) -> None:
    bench.put(1)
    await bench.lifecycle.load("m")
    delivered = hashlib.sha256((bench.root / "m/1/model.onnx").read_bytes()).hexdigest()
    assert bench.lifecycle.sha256_of("m", 1) == delivered
    (bench.root / "m/1/model.onnx").write_bytes(onnx_models.plus(7.0))
    await bench.lifecycle.load("m")  # it is live already
    assert bench.lifecycle.sha256_of("m", 1) == delivered
    assert (bench.lifecycle.sha256_of("m", 2), bench.lifecycle.sha256_of("nobody", 1)) == ("", "")


async def test_loading_what_is_live_does_nothing(bench: Bench) -> None:
    bench.put(1)
    await bench.lifecycle.load("m")
    live = bench.registry.live("m")
    assert await bench.lifecycle.load("m") == 1
    assert bench.registry.live("m") is live
    assert bench.verifier.asked == [1]


@pytest.mark.parametrize("bad", [b"nonsense", onnx_models.with_external_data(), onnx_models.with_custom_operator()])
async def test_a_bad_version_leaves_the_old_one_serving(bench: Bench, bad: bytes) -> None:
    bench.put(1)
    await bench.lifecycle.load("m")
    bench.put(2, bad)
    with pytest.raises(ArtefactRefusedError, match=r"version 2 of model 'm' was refused: .*; version 1 stays live"):
        await bench.lifecycle.load("m")
    assert await bench.answer() == ("1", 1.0)
    assert await bench.states() == {"1": "READY", "2": "UNAVAILABLE"}


async def test_a_version_without_a_model_is_refused(bench: Bench) -> None:
    (bench.root / "m" / "1").mkdir(parents=True)
    with pytest.raises(ArtefactRefusedError, match=r"model\.onnx cannot be read: .*; no version of it is live"):
        await bench.lifecycle.load("m")


async def test_what_is_loaded_is_what_was_verified_whatever_becomes_of_the_file(bench: Bench) -> None:
    bench.put(1)
    bench.verifier.gate.clear()
    bench.verifier.began.clear()
    load = asyncio.ensure_future(bench.lifecycle.load("m"))
    await bench.verifier.began.wait()
    (bench.root / "m/1/model.onnx").write_bytes(onnx_models.plus(7.0))
    bench.verifier.gate.set()
    await load
    assert await bench.answer() == ("1", 1.0)


async def test_loads_of_a_model_come_one_after_the_other(bench: Bench) -> None:
    bench.put(1)
    bench.verifier.gate.clear()
    bench.verifier.began.clear()
    loads = [asyncio.ensure_future(bench.lifecycle.load("m")) for _ in range(5)]
    await bench.verifier.began.wait()
    bench.put(2)
    bench.verifier.gate.set()
    assert await asyncio.gather(*loads) == [1, 2, 2, 2, 2]
    assert bench.verifier.asked == [1, 2]


async def test_requests_are_answered_by_the_old_version_until_the_new_one_is_up(bench: Bench) -> None:
    bench.put(1)
    await bench.lifecycle.load("m")
    bench.put(2)
    bench.verifier.gate.clear()
    bench.verifier.began.clear()
    load = asyncio.ensure_future(bench.lifecycle.load("m"))
    await bench.verifier.began.wait()
    assert await bench.answer() == ("1", 1.0)
    assert (await bench.states())["2"] == "LOADING"
    bench.verifier.gate.set()
    await load
    assert await bench.answer() == ("2", 2.0)


async def test_an_old_version_is_released_after_its_last_request(bench: Bench) -> None:
    bench.put(1)
    await bench.lifecycle.load("m")
    old = bench.registry.live("m")
    old.acquire()
    bench.put(2)
    await bench.lifecycle.load("m")
    assert (await bench.states())["1"] == "UNLOADING"
    assert old.session is not None
    old.release()
    async with asyncio.timeout(90):
        while (await bench.states())["1"] != "UNAVAILABLE":  # each look is a turn of the loading thread
            pass
    with pytest.raises(RuntimeError):
        _ = old.session


async def test_a_load_that_is_broken_off_leaves_no_trace_of_loading(bench: Bench) -> None:
    bench.put(1)
    bench.verifier.gate.clear()
    bench.verifier.began.clear()
    load = asyncio.ensure_future(bench.lifecycle.load("m"))
    await bench.verifier.began.wait()
    load.cancel()
    with pytest.raises(asyncio.CancelledError):
        await load
    assert await bench.states() == {"1": "UNAVAILABLE"}
    bench.verifier.running = 0
    bench.verifier.gate.set()
    assert await bench.lifecycle.load("m") == 1


async def test_at_the_start_a_bad_newest_version_gives_way_to_the_next(bench: Bench) -> None:
    bench.put(1)
    bench.put(2)
    bench.put(3, b"nonsense")
    (bench.root / "empty").mkdir()
    onnx_models.put(bench.root, "hopeless", 1, b"nonsense")
    await bench.lifecycle.load_all()
    assert bench.registry.ready
    assert await bench.answer() == ("2", 2.0)
    assert bench.verifier.asked.count(1) == 1  # the hopeless one's; ours was not needed


async def test_an_unloaded_model_is_gone_and_can_come_back(bench: Bench) -> None:
    bench.put(1)
    await bench.lifecycle.load("m")
    bench.registry.ready = True
    await bench.lifecycle.unload("m")
    await bench.lifecycle.unload("m")
    with pytest.raises(NotFoundError):
        await bench.answer()
    assert await bench.lifecycle.load("m") == 1
    assert await bench.answer() == ("1", 1.0)
    assert (await bench.states())["1"] == "READY"


@pytest.mark.parametrize(("name", "error"), [("nobody", NotFoundError), ("../m", InvalidRequestError)])
async def test_names_that_are_not_there(bench: Bench, name: str, error: Any) -> None:
    with pytest.raises(error):
        await bench.lifecycle.load(name)
    with pytest.raises(error):
        await bench.lifecycle.unload(name)
    assert bench.registry.known(name) is None


async def test_a_model_whose_folder_is_gone_stays_live_and_is_not_loaded_again(bench: Bench) -> None:
    bench.put(1)
    await bench.lifecycle.load("m")
    shutil.rmtree(bench.root / "m")
    with pytest.raises(NotFoundError, match="'m' has no version on disk"):
        await bench.lifecycle.load("m")
    assert await bench.answer() == ("1", 1.0)


async def test_a_swap_reads_builds_and_frees_off_the_event_loop(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.put(1)
    await bench.lifecycle.load("m")
    bench.put(2)
    threads: dict[str, int] = {}

    def noted(name: str, function: Any) -> Any:
        def note(*arguments: Any) -> Any:
            threads[name] = threading.get_ident()
            return function(*arguments)

        return note

    monkeypatch.setattr(artefact_file, "sealed_copy", noted("read", artefact_file.sealed_copy))
    monkeypatch.setattr(engine, "build_session", noted("build", engine.build_session))
    monkeypatch.setattr(engine.Session, "close", noted("free", engine.Session.close))
    await bench.lifecycle.load("m")
    await until(lambda: "free" in threads)
    assert set(threads) == {"read", "build", "free"}
    assert threading.get_ident() not in threads.values()


async def test_a_server_that_hands_over_waits_for_loads_and_takes_none_that_stood_in_line(bench: Bench) -> None:
    bench.put(1)
    bench.put(2)
    bench.verifier.gate.clear()
    under_way = asyncio.create_task(bench.load(version=1))
    await bench.verifier.began.wait()
    in_line = asyncio.create_task(bench.load(version=2))
    await until(lambda: bool(bench.lifecycle.lock_of("m")._waiters))
    paused = asyncio.create_task(bench.lifecycle.pause())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not paused.done()
    bench.verifier.gate.set()
    async with asyncio.timeout(90):
        await paused
        assert bench.lifecycle.live_versions() == {"m": 1}
        assert await under_way == 1
        with pytest.raises(UnavailableError, match="handing over"):
            await in_line
    assert bench.verifier.asked == [1]
    bench.lifecycle.resume()
    assert await bench.load(version=2) == 2


async def test_a_trial_is_not_decided_while_the_server_hands_over(bench: Bench) -> None:
    bench.put(1)
    await bench.load()
    bench.put(2)
    await bench.load(canary_fraction=0.5, canary_requests=2)
    await bench.lifecycle.pause()
    for _ in range(8):
        await bench.answer()
    looked = bench.registry.record("m").trial
    assert looked is not None
    looks: list[float] = []
    look = looked.look

    def counted(now: float) -> Any:
        looks.append(now)
        return look(now)

    looked.look = counted  # type: ignore[method-assign]
    await until(lambda: len(looks) >= 3)  # it was looked at more than once, with all that would decide it
    assert bench.registry.record("m").trial is looked
    assert bench.lifecycle.live_versions() == {"m": 1}
    assert set(bench.lifecycle.trials()) == {"m"}
    bench.lifecycle.resume()
    await until(lambda: bench.registry.record("m").trial is None)
    assert await bench.answer() == ("2", 2.0)


async def test_a_load_goes_back_to_an_earlier_version_by_its_number(bench: Bench) -> None:
    for version in (1, 2, 3):
        bench.put(version)
    assert await bench.load() == 3
    assert await bench.load(version="2") == 2
    assert await bench.answer() == ("2", 2.0)
    with pytest.raises(NotFoundError, match=r"version 7 of model 'm' is not on disk; there is 3, 2, 1"):
        await bench.load(version=7)
    for wrong in (True, "two", 0, -1, 1.5):
        with pytest.raises(InvalidRequestError, match="version"):
            await bench.load(version=wrong)
    with pytest.raises(InvalidRequestError, match="'config' is unknown"):
        await bench.load(config="{}")
    assert await bench.load() == 3


async def test_a_canary_gets_its_share_and_everything_after_it_did_well(bench: Bench) -> None:
    bench.put(1)
    await bench.load()
    bench.put(2)
    assert await bench.load(canary_fraction=0.25, canary_requests=10) == 2
    assert await bench.states() == {"1": "READY", "2": "READY"}
    answered = await bench.ask_until_it_is_over()
    assert answered[:8] == ["1", "1", "1", "2"] * 2
    assert await bench.answer() == ("2", 2.0)
    trial = bench.lifecycle.trial("m")["canary"]
    assert (trial["state"], trial["version"], trial["against"]) == ("PROMOTED", "2", "1")
    assert trial["new"]["answers"] >= 10


async def test_versions_can_be_asked_for_by_number_while_both_are_loaded(bench: Bench) -> None:
    bench.put(1)
    await bench.load()
    bench.put(2)
    await bench.load(canary_fraction=0.01, canary_seconds=1000)
    for version in ("1", "2"):
        assert bench.registry.live("m", version).version_text == version
    with pytest.raises(NotFoundError):
        bench.registry.live("m", "3")
    await bench.lifecycle.unload("m")


async def test_a_canary_that_says_something_else_is_rolled_back_with_the_reason(bench: Bench) -> None:
    bench.put(1)
    await bench.load()
    bench.put(2)
    await bench.load(canary_fraction=0.1, canary_seconds=1000, canary_max_difference=0.5, canary_compare_fraction=1)
    await bench.ask_until_it_is_over()
    assert await bench.answer() == ("1", 1.0)
    trial = bench.lifecycle.trial("m")
    assert (trial["live"], trial["canary"]["state"]) == ("1", "ROLLED_BACK")
    assert trial["canary"]["reason"] == "outputs differ by 1, more than max_difference 0.5"
    async with asyncio.timeout(90):
        while (await bench.states())["2"] != "UNAVAILABLE":
            pass
    (line,) = (line for line in await bench.lifecycle.index(only_ready=False) if line["version"] == "2")
    assert line["reason"] == "rolled back: outputs differ by 1, more than max_difference 0.5"
    assert bench.registry.live("m").session.observer is None


async def test_a_canary_that_fails_is_rolled_back(bench: Bench) -> None:
    bench.put(1)
    await bench.load()
    onnx_models.put(bench.root, "m", 2, onnx_models.plus(2.0, features=5))  # it takes what nobody sends
    await bench.load(canary_fraction=0.5, canary_seconds=1000)
    new = bench.registry.live("m", "2")
    async with asyncio.timeout(90):
        while bench.registry.record("m").trial is not None:
            new.statistics.failed(InferenceFailedError("the model failed"), 0.0)
            await asyncio.sleep(0)
    assert await bench.answer() == ("1", 1.0)
    assert "requests failed (100.0%)" in bench.lifecycle.trial("m")["canary"]["reason"]


async def test_an_operator_may_decide_a_trial(bench: Bench) -> None:
    bench.put(1)
    await bench.load()
    bench.put(2)
    plan = {"canary_fraction": 0.1, "canary_seconds": 1000}
    await bench.load(**plan)
    trial = bench.registry.record("m").trial
    assert await bench.load(**plan) == 2
    assert bench.registry.record("m").trial is trial, "doing it twice is doing it once"
    assert await bench.load(version=1) == 1
    assert bench.lifecycle.trial("m")["canary"]["reason"] == "version 1 was loaded"
    assert await bench.answer() == ("1", 1.0)
    await bench.load(**plan)
    assert await bench.load() == 2
    assert bench.lifecycle.trial("m")["canary"]["state"] == "PROMOTED"
    assert await bench.answer() == ("2", 2.0)


async def test_the_first_version_of_a_model_is_not_tried(bench: Bench) -> None:
    bench.put(1)
    assert await bench.load(canary_fraction=0.1) == 1
    assert await bench.answer() == ("1", 1.0)
    assert bench.lifecycle.trial("m") == {"name": "m", "live": "1", "canary": None}


async def test_an_unloaded_model_takes_its_canary_with_it(bench: Bench) -> None:
    bench.put(1)
    await bench.load()
    bench.put(2)
    await bench.load(canary_fraction=0.1)
    await bench.lifecycle.unload("m")
    bench.registry.ready = True
    for version in ("", "1", "2"):
        with pytest.raises(NotFoundError):
            bench.registry.live("m", version)


async def on_trial(bench: Bench, load: asyncio.Future[int]) -> None:
    """Until the version that is being loaded is on trial."""
    await until(lambda: bench.registry.record("m").trial is not None or load.done())


async def test_where_it_is_set_a_load_is_answered_when_the_trial_has_ended_well(bench: Bench) -> None:
    bench.put(1)
    await bench.load()
    bench.try_newer_versions(canary_fraction=0.5, canary_requests=10, canary_seconds=1000)
    bench.put(2)
    load = asyncio.ensure_future(bench.load())
    await on_trial(bench, load)
    again = asyncio.ensure_future(bench.load())
    assert "2" in await bench.ask_until_it_is_over()
    assert (await load, await again) == (2, 2)
    assert bench.verifier.asked == [1, 2], "a load that is asked for again joins the one under way"
    assert await bench.answer() == ("2", 2.0)


async def test_what_was_rolled_back_is_refused_until_somebody_names_it(bench: Bench) -> None:
    bench.put(1)
    await bench.load()
    bench.try_newer_versions(
        canary_fraction=0.5, canary_seconds=1000, canary_max_difference=0.5, canary_compare_fraction=1
    )
    bench.put(2)
    load = asyncio.ensure_future(bench.load())
    await on_trial(bench, load)
    await bench.ask_until_it_is_over()
    for outcome in (load, bench.load()):
        with pytest.raises(ArtefactRefusedError, match="was rolled back: outputs differ by 1"):
            await outcome
    assert bench.verifier.asked == [1, 2]
    assert await bench.answer() == ("1", 1.0)

    fresh = Bench.beside(bench)
    await fresh.lifecycle.load_all()
    assert await fresh.answer() == ("1", 1.0), "nor does a restart bring it back"
    assert (await fresh.states())["2"] == "UNAVAILABLE"
    fresh.close()

    assert await bench.load(version=2, canary_fraction=1) == 2
    assert await bench.answer() == ("2", 2.0)
    assert await bench.load() == 2


async def test_a_model_may_have_a_canary_of_its_own(bench: Bench) -> None:
    bench.put(1)
    await bench.load()
    bench.put(2)
    (bench.root / "m" / "config.pbtxt").write_text(
        'parameters { key: "canary_fraction" value { string_value: "0.5" } }'
        'parameters { key: "canary_requests" value { string_value: "4" } }'
    )
    load = asyncio.ensure_future(bench.load())
    await on_trial(bench, load)
    assert (await bench.ask_until_it_is_over())[:2] == ["1", "2"]
    assert await load == 2


async def test_an_earlier_version_comes_back_at_once_where_newer_ones_are_tried(bench: Bench) -> None:
    bench.put(1)
    bench.put(2)
    await bench.load()
    bench.try_newer_versions(canary_fraction=0.5, canary_seconds=1000)
    assert await bench.load(version=1) == 1
    assert await bench.answer() == ("1", 1.0)
    assert await bench.load(canary_fraction=1) == 2
    assert await bench.answer() == ("2", 2.0)


async def test_a_server_that_leaves_tells_those_who_wait_for_a_trial(bench: Bench) -> None:
    bench.put(1)
    await bench.load()
    bench.try_newer_versions(canary_fraction=0.5, canary_seconds=1000)
    bench.put(2)
    load = asyncio.ensure_future(bench.load())
    await on_trial(bench, load)
    bench.lifecycle.leave()
    with pytest.raises(UnavailableError, match="from the one that follows"):
        await load
    bench.registry.record("m").trial = None  # ends the task that watches it


async def test_a_slow_check_of_one_model_holds_up_no_other(bench: Bench) -> None:
    bench.put(1)
    bench.verifier.gate.clear()
    bench.verifier.began.clear()
    slow = asyncio.ensure_future(bench.load())
    await bench.verifier.began.wait()
    gate, bench.verifier.gate = bench.verifier.gate, asyncio.Event()
    bench.verifier.gate.set()
    bench.verifier.running = 0
    onnx_models.put(bench.root, "other", 1, onnx_models.plus(1.0))
    assert await bench.lifecycle.load("other") == 1
    assert not slow.done()
    bench.verifier.running = 1
    gate.set()
    await slow


async def test_telling_of_a_model_takes_nobodys_turn_in_a_trial(bench: Bench) -> None:
    bench.put(1)
    await bench.load()
    bench.put(2)
    await bench.load(canary_fraction=0.5, canary_seconds=1000)
    descriptions = Descriptions(bench.registry, 1, 1)
    told: list[list[str]] = []
    found: list[str] = []
    for _ in range(6):
        told.append(bench.plane.model_metadata("m")["versions"])
        told.append([each["version"] for each in descriptions.statistics("m")["model_stats"]])
        assert bench.plane.is_model_ready("m")
        descriptions.config("m")
        found.append((await bench.answer())[0])
    answering = [bench.lifecycle.answers("m", version) for version in (1, 2, 3)]
    second = bench.plane.model_metadata("m", "2")["versions"]
    await bench.lifecycle.unload("m")
    assert told == [["1", "2"]] * 12
    assert second == ["2"]
    assert found == ["1", "2"] * 3
    assert answering == [True, True, False]
