"""A lifecycle of models with all that it needs, in this process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np

from testing import onnx_models
from tiercel.serving.canary_plan import plan_from
from tiercel.serving.dataplane import DataPlane
from tiercel.serving.dispatch.dispatcher import Dispatcher
from tiercel.serving.loading.lifecycle import Lifecycle
from tiercel.serving.loading.load_parameters import read_load_parameters
from tiercel.serving.loading.loader import BuildOptions, Loader
from tiercel.serving.models.registry import Registry
from tiercel.serving.models.repository import Artefact
from tiercel.serving.requests import InferRequest, InputTensor
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
