"""A model of 2.5 GB: deployed twice, and swapped while it is asked; and the memory that this takes.

The model looks rows up in a table and multiplies them by four matrices, so that both of what ONNX Runtime does with
weights is in it: it maps the table, and makes copies of the matrices in the form that its kernels want. All elements of
a weight are alike, which makes the answer known, and no file is ever whole in memory here.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
from onnx import TensorProto, helper

from testing.product import Product
from testing.product_use import client_of, running_product
from tiercel import Client

Json = dict[str, Any]

TABLE_ROWS, NARROW, WIDE = 393_216, 1024, 65_536
"""1.5 GiB of table, and four matrices of 256 MiB."""
_PIECE_BYTES = 4 * 1024**2
_CALLERS = 2
_LOOK_SECONDS = 0.05
_ENDPOINT = "large"


def write_model(path: Path, value: float, *, table_rows: int = TABLE_ROWS, wide: int = WIDE) -> int:
    """Write a model whose answers are all ``value``; returns bytes of it with its weights."""
    shapes = [(table_rows, NARROW), *itertools.islice(itertools.cycle([(NARROW, wide), (wide, NARROW)]), 4)]
    # Answers of each matrix are ones again, and no two weights are alike: ONNX Runtime would keep one of them.
    factors = zip(shapes[1:], (2, 0.5, 4, 0.125), strict=True)
    numbers = [value * 2.0, *(factor / before for (before, _), factor in factors)]
    weights, at = [], 0
    with path.with_name(f"{path.name}.data").open("wb") as file:
        for index, (shape, number) in enumerate(zip(shapes, numbers, strict=True)):
            size = 4 * shape[0] * shape[1]
            said = {"location": file_name(path), "offset": str(at), "length": str(size)}
            weights.append(_external(f"w{index}", shape, said))
            piece = np.full(_PIECE_BYTES // 4, number, np.float32).tobytes()
            for begin in range(0, size, _PIECE_BYTES):
                file.write(piece[: min(_PIECE_BYTES, size - begin)])
            at += size
    nodes = [helper.make_node("Gather", ["w0", "rows"], ["h0"])]
    nodes += [helper.make_node("MatMul", [f"h{i}", f"w{i + 1}"], ["y" if i == 3 else f"h{i + 1}"]) for i in range(4)]
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("rows", TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", NARROW])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return at + path.stat().st_size


def file_name(path: Path) -> str:
    """The file with the weights of a model."""
    return f"{path.name}.data"


def _external(name: str, shape: tuple[int, int], said: dict[str, str]) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name=name, dims=shape, data_type=TensorProto.FLOAT)
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in said.items():
        tensor.external_data.add(key=key, value=text)
    return tensor


class Memory:
    """The most memory that processes have had: their own, and their part of what they share."""

    def __init__(self, product: Product) -> None:
        self._product = product
        self.peaks: dict[str, int] = {}

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Look while the block runs."""
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            found = await asyncio.to_thread(self._look)
            for name, size in found.items():
                self.peaks[name] = max(size, self.peaks.get(name, 0))
            await asyncio.sleep(_LOOK_SECONDS)

    def _look(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for process in _family(self._product.pid):
            with contextlib.suppress(psutil.Error, OSError):
                words = process.cmdline()
                name = next((name for name, word in _ROLES.items() if word in words), "other")
                found[name] = found.get(name, 0) + proportional_bytes(process.pid)
        found["server and verifier"] = found.get("server", 0) + found.get("verifier", 0)
        return found


_ROLES = {
    "verifier": "tiercel.serving.verification.verifier_process",
    "server": "tiercel.serving",
    "agent": "tiercel.trainer_agent",
    "broker": "up",
}


def _family(pid: int) -> Iterator[psutil.Process]:
    """A process, and all that began with it, also what has a session of its own."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid == pid or any(parent.pid == pid for parent in process.parents()):
                yield process


def proportional_bytes(pid: int) -> int:
    """Memory of a process, in which a page that several have counts for each by its part."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


class Load:
    """Callers that ask without a pause, and what became of their requests."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.answered: dict[str, int] = {}
        self.failed: list[str] = []
        self.longest = 0.0

    @contextlib.asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Ask while the block runs."""
        tasks = [asyncio.create_task(self._ask(caller)) for caller in range(_CALLERS)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, caller: int) -> None:
        rows = np.arange(caller, caller + 2, dtype=np.int64)
        while True:
            began = time.monotonic()
            try:
                answer = await self._client.infer(_ENDPOINT, {"rows": rows})
            except Exception as error:  # whatever it is, it is a request that failed
                self.failed.append(f"{type(error).__name__}: {error}"[:300])
            else:
                self._note(str(answer.version), np.array(answer.outputs["y"].tolist()))
            self.longest = max(self.longest, time.monotonic() - began)

    def _note(self, version: str, answers: np.ndarray[Any, Any]) -> None:
        """Count an answer; each version answers its own number."""
        if np.allclose(answers, float(version), rtol=1e-3):
            self.answered[version] = self.answered.get(version, 0) + 1
        else:
            self.failed.append(f"version {version} answers {answers.ravel()[0]}")


async def measured(*, table_rows: int = TABLE_ROWS, wide: int = WIDE) -> Json:
    """Deploy two versions, the second under load; what failed, and the most memory."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        paths = [place / "one.onnx", place / "two.onnx"]
        size = [write_model(path, index + 1.0, table_rows=table_rows, wide=wide) for index, path in enumerate(paths)]
        async with running_product(place) as product, client_of(product) as client:
            await client.deploy(paths[0], _ENDPOINT, inputs={"rows": (2,)})
            memory, load = Memory(product), Load(client)
            async with memory.watched(), load.going_on():
                await asyncio.sleep(5.0)
                began = time.monotonic()
                second = await client.deploy(paths[1], _ENDPOINT, inputs={"rows": (2,)})
                took = time.monotonic() - began
                await asyncio.sleep(5.0)
    both = sum(size)
    return {
        "model_bytes": size,
        "is_live": second.live,
        "deploy_seconds": took,
        "answered": load.answered,
        "failed": len(load.failed),
        "first_failures": load.failed[:3],
        "longest_seconds": load.longest,
        "peak_bytes": memory.peaks,
        "part_of_both": memory.peaks["server and verifier"] / both,
    }
