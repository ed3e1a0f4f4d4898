"""Swaps where a budget says how much of the accelerator's memory versions may take; the accelerator is a stand-in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest

from testing import onnx_models
from testing.stand_in_accelerator import StandInDevices
from testing.until import until
from tiercel.core.cheap_variants import CHEAP, VariantKind
from tiercel.core.errors import ArtefactRefusedError, UnavailableError
from tiercel.serving.dataplane import DataPlane
from tiercel.serving.descriptions import Descriptions
from tiercel.serving.dispatch.dispatcher import Dispatcher
from tiercel.serving.loading import cheap_variants, relocation
from tiercel.serving.loading.lifecycle import Lifecycle
from tiercel.serving.loading.load_parameters import read_load_parameters
from tiercel.serving.loading.loader import BuildOptions, Loader
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.models.registry import Registry
from tiercel.serving.models.repository import Artefact
from tiercel.serving.requests import InferRequest, InputTensor
from tiercel.serving.rest.metrics import Metrics, write
from tiercel.serving.runtime.artefact_file import SealedFile
from tiercel.serving.runtime.measure import Batching
from tiercel.serving.runtime.placement import AcceleratorMemory, MemoryOptions, Placement
from tiercel.serving.runtime.providers import AUTOMATIC
from tiercel.serving.runtime.workers import Workers
from tiercel.serving.tasks import StartTask
from tiercel.serving.tensors import BY_NAME
from tiercel.serving.verification import checks
from tiercel.serving.verification.verdict import Verdict

MIB = 1024**2
EACH = 40 * MIB
BOTH = 90 * MIB
ONE = 70 * MIB


class SameProcessVerifier:
    """The real checks without a process around them.

    Attributes:
        rows: The largest batch of interest, for each check.
        known: What each check was told of the version before.
    """

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.known: list[Batching | None] = []

    def verify(
        self, artefact: Artefact, model: SealedFile, batch_rows: int, known: Batching | None
    ) -> Awaitable[Verdict]:
        self.rows.append(batch_rows)
        self.known.append(known)

        async def check() -> Verdict:
            return checks.verify(model.path, artefact.reference, MIB)

        return check()


class Bench:
    """A server's inside with a device whose sessions take 40 MiB each."""

    def __init__(self, root: Path, start: StartTask, budget: int, *, may_move: bool) -> None:
        self.root = root
        self.devices = StandInDevices(1000 * MIB, EACH)
        self.memory = AcceleratorMemory(MemoryOptions(budget, may_move=may_move))
        placement = Placement(AUTOMATIC, self.devices, self.memory)
        self.registry = Registry()
        self.verifier = SameProcessVerifier()
        self.loader = Loader(self.verifier, BuildOptions(1, 10.0, MIB, 8), placement)
        self.lifecycle = Lifecycle(root, self.registry, self.loader, start, look_seconds=0.0)
        self.workers = Workers(1)
        self.executor = Dispatcher(self.workers, 10, MIB)
        self.plane = DataPlane(self.registry, self.executor, 30.0)

    def close(self) -> None:
        self.loader.close()
        self.executor.close()
        self.workers.close()

    async def load(self, version: int, content: bytes | None = None, **parameters: str) -> int:
        onnx_models.put(self.root, "m", version, onnx_models.plus(version) if content is None else content)
        return await self.lifecycle.load("m", read_load_parameters(parameters))

    @property
    def live(self) -> LoadedVersion:
        return self.registry.live("m")

    @property
    def runs_on(self) -> tuple[int, str]:
        return self.live.version, self.live.session.provider.value

    async def answer(self) -> float:
        tensor = InputTensor("x", BY_NAME["FP32"], np.zeros((1, 4), np.float32))
        return float((await self.plane.infer(InferRequest("m", "", [tensor]))).outputs[0].array[0, 0])


class Make(Protocol):
    """Makes a bench; how much there is to give, and whether versions may move."""

    def __call__(self, budget: int, *, may_move: bool) -> Bench: ...


@pytest.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    benches: list[Bench] = []

    def make_one(budget: int, *, may_move: bool) -> Bench:
        benches.append(
            Bench(tmp_path, lambda work, name: group.create_task(work, name=name), budget, may_move=may_move)
        )
        return benches[-1]

    async with asyncio.TaskGroup() as group:
        yield make_one
    for bench in benches:
        bench.close()


async def test_without_a_budget_both_are_there_for_a_while(make: Make) -> None:
    bench = make(0, may_move=False)
    for version in (1, 2, 3):
        await bench.load(version)
        await until(lambda: bench.devices.taken == EACH)
    assert bench.runs_on == (3, "cuda")
    assert (bench.devices.peak, bench.devices.limits) == (2 * EACH, [0, 0, 0])
    assert bench.memory.held == EACH
    assert bench.verifier.rows == [1, 1, 1]  # what runs on the device is measured there
    assert bench.verifier.known == [None, None, None]  # nor says what was measured there anything about the CPU


async def test_requests_run_on_threads_and_what_the_accelerator_did_is_counted(make: Make) -> None:
    bench = make(BOTH, may_move=False)
    await bench.load(1)
    assert await bench.answer() == 1.0
    assert bench.live.session.inline_elements == -1  # although the budget of the event loop is 10 seconds
    line = bench.plane.usage()["models"][0]
    assert line["accelerator_seconds"] > 0
    assert bench.live.session.take_accelerator_seconds() == 0


async def test_what_a_version_runs_on_and_takes_there_is_told(make: Make) -> None:
    bench = make(BOTH, may_move=False)
    await bench.load(1)
    config = Descriptions(bench.registry, 8, 2).config("m")
    assert config["instance_group"] == [{"name": "m", "kind": "KIND_GPU", "count": 1}]
    told = write(Metrics(bench.registry).snapshot(), "text/plain")[0].decode()
    assert 'tiercel_model_provider{model="m",provider="cuda",version="1"} 1.0' in told
    assert 'tiercel_model_accelerator_memory_bytes{model="m",version="1"} 4.194304e+07' in told


async def test_a_version_that_fits_beside_the_old_one_comes_in_with_what_is_left_as_its_limit(make: Make) -> None:
    bench = make(BOTH, may_move=True)
    await bench.load(1)
    await bench.load(2)
    assert bench.runs_on == (2, "cuda")
    assert bench.devices.limits == [BOTH, BOTH - EACH]
    assert bench.devices.peak == 2 * EACH


async def test_a_version_that_does_not_fit_is_refused_and_the_old_one_goes_on(make: Make) -> None:
    bench = make(ONE, may_move=False)
    await bench.load(1)
    with pytest.raises(
        ArtefactRefusedError, match=r"needs about 40 MiB beside 40 MiB .*--swap-over-cpu.* 1 stays live"
    ):
        await bench.load(2)
    assert bench.runs_on == (1, "cuda")
    assert await bench.answer() == 1.0
    assert (bench.devices.peak, bench.memory.held) == (EACH, EACH)


async def test_the_old_version_answers_from_the_cpu_while_the_new_one_is_loaded(make: Make) -> None:
    bench = make(ONE, may_move=True)
    await bench.load(1)
    statistics = bench.live.statistics
    asking = True
    answers: list[float] = []

    async def ask() -> None:
        while asking:
            answers.append(await bench.answer())
            await asyncio.sleep(0)

    asker = asyncio.create_task(ask())
    await bench.load(2)
    asking = False
    await asker
    assert set(answers) <= {1.0, 2.0}  # none failed
    assert answers == sorted(answers)
    assert bench.runs_on == (2, "cuda")
    assert bench.devices.peak == EACH
    assert bench.devices.limits == [ONE, ONE]
    assert bench.registry.record("m").swaps == 1
    assert bench.verifier.rows == [1, 1, 8]  # the old one's session on the CPU is measured by the checks
    assert statistics.successes >= 1
    await until(lambda: bench.registry.record("m").history[1].state.value == "UNAVAILABLE")
    assert bench.memory.held == EACH


async def test_an_old_version_that_moved_for_one_that_fails_is_back_on_the_accelerator(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make(ONE, may_move=True)
    await bench.load(1)
    opened = bench.devices.open
    seen: list[tuple[int, str]] = []

    def fail(*_: object, **__: object) -> object:
        seen.append(bench.runs_on)
        monkeypatch.setattr(bench.devices, "open", opened)
        raise ArtefactRefusedError("it does not load")

    original = bench.loader.session_on_cpu

    async def then_fail(artefact: Artefact) -> object:
        session = await original(artefact)
        monkeypatch.setattr(bench.devices, "open", fail)
        return session

    monkeypatch.setattr(bench.loader, "session_on_cpu", then_fail)
    with pytest.raises(ArtefactRefusedError, match="it does not load; version 1 stays live"):
        await bench.load(2)
    assert seen == [(1, "cpu")]
    assert bench.runs_on == (1, "cuda")
    assert await bench.answer() == 1.0
    assert bench.devices.peak == EACH


async def test_a_variant_in_float16_is_on_the_accelerator_beside_its_version_and_makes_room_with_it(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cheap_variants, "is_faster", lambda *_: True)
    bench = make(110 * MIB, may_move=True)
    folder = onnx_models.put(tmp_path, "m", 1, onnx_models.plus(1))
    for kind in CHEAP:
        (folder / kind.file).write_bytes(onnx_models.plus(1))
    (folder / "accuracy.json").write_text(json.dumps({"accuracy": 0.9} | dict.fromkeys(CHEAP, 0.8)))
    await bench.lifecycle.load("m")
    on = {kind: each.session.provider.value for kind, each in bench.live.by_kind.items()}
    assert on == {VariantKind.FP32: "cuda", VariantKind.INT8: "cpu", VariantKind.FP16: "cuda"}
    assert bench.devices.taken == bench.memory.held == 2 * EACH
    await bench.load(2)  # which has no room beside both
    assert bench.runs_on == (2, "cuda")
    assert (bench.devices.taken, bench.memory.held, bench.devices.peak) == (EACH, EACH, 2 * EACH)


async def test_a_trial_needs_room_for_both(make: Make) -> None:
    bench = make(ONE, may_move=True)
    await bench.load(1)
    with pytest.raises(ArtefactRefusedError, match="needs about 40 MiB beside 40 MiB of the version it replaces"):
        await bench.load(2, canary_fraction="0.5")
    assert bench.runs_on == (1, "cuda")


async def test_requests_that_do_not_end_are_not_waited_for_forever(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relocation, "_DRAIN_SECONDS", 0.0)
    bench = make(ONE, may_move=True)
    await bench.load(1)
    first = bench.live
    first.acquire()
    with pytest.raises(UnavailableError, match="have kept the accelerator for 0 seconds; load it again"):
        await bench.load(2)
    assert bench.runs_on == (1, "cpu")
    assert await bench.answer() == 1.0
    first.release()
    await until(lambda: bench.devices.taken == 0)
    assert await bench.lifecycle.load("m") == 2
    assert bench.runs_on == (2, "cuda")


async def test_a_model_may_say_that_it_wants_to_run_on_the_cpu(make: Make, tmp_path: Path) -> None:
    bench = make(ONE, may_move=True)
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.pbtxt").write_text("instance_group [ { count: 1 kind: KIND_CPU } ]")
    await bench.load(1)
    assert bench.runs_on == (1, "cpu")
    (tmp_path / "m" / "config.pbtxt").unlink()
    await bench.load(2)
    assert bench.runs_on == (2, "cuda")


async def test_models_come_in_one_after_the_other_and_those_without_room_run_on_the_cpu(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = make(3 * EACH + 10 * MIB, may_move=True)
    for name in ("a", "b", "c", "d"):
        onnx_models.put(tmp_path, name, 1, onnx_models.plus(1.0))
    await bench.lifecycle.load_all()
    live = [bench.registry.live(name).session.provider.value for name in bench.lifecycle.live_versions()]
    assert sorted(live) == ["cpu", "cpu", "cuda", "cuda"]  # what is not measured yet is held to take 64 MiB
    assert bench.devices.peak == 2 * EACH
    assert caplog.text.count("' runs on cpu, not on cuda: it needs about 65 MiB beside 80 MiB of others") == 2
