"""What reading a request and writing its answer cost the inference server: ``python -m benchmarks.serving_codec``.

CPU microseconds in one process, without sockets and models, the best of several rounds; so it is steady on a machine
that has other work, and tells what a change to ``serving/rest`` costs or saves. Not part of any goal.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from tiercel.serving.connections.listening import Connections
from tiercel.serving.dataplane import DataPlane
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.operators import Operators
from tiercel.serving.requests import Answered, Checked, InferRequest, InferResult, OutputTensor
from tiercel.serving.rest.connection import HttpConnection
from tiercel.serving.rest.decoding import decode_request
from tiercel.serving.rest.encoding import encode_result
from tiercel.serving.rest.messages import ByteBudget, HttpRequest
from tiercel.serving.rest.quick_receiver import QuickReceiver
from tiercel.serving.rest.receiver import HttpLimits, Receiver
from tiercel.serving.rest.recognition import recognise
from tiercel.serving.rest.routes import Routes
from tiercel.serving.rest.template import AnswerFormat
from tiercel.serving.tensors import BY_NAME, TensorSpec

ROUNDS = 7
ROUND_SECONDS = 0.05
LIMITS = HttpLimits(16 * 1024, 64 * 1024**2, 1024, 75.0, 30.0)
MAX_JSON = 16 * 1024**2
SHAPES = {"MLP, 64 numbers": (1, 64), "LeNet, 784 numbers": (1, 1, 28, 28)}
ANSWER = InferResult(
    "mlp",
    "1",
    [OutputTensor(TensorSpec("y", BY_NAME["FP32"], (-1, 10)), np.random.default_rng(0).random((1, 10), np.float32))],
)


def wire(shape: tuple[int, ...], binary: bool, request_id: str = "") -> bytes:
    """An inference request as it comes over the network."""
    features = np.random.default_rng(0).random(shape).round(4).astype(np.float32)
    tensor: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": shape}
    content: dict[str, Any] = {"id": request_id} if request_id else {}
    more = ""
    tail = b""
    if binary:
        tail = features.tobytes()
        tensor["parameters"] = {"binary_data_size": len(tail)}
        content["parameters"] = {"binary_data_output": True}
    else:
        tensor["data"] = [round(float(each), 4) for each in features.ravel()]
    text = json.dumps(content | {"inputs": [tensor]}).encode()
    if binary:
        more = f"Inference-Header-Content-Length: {len(text)}\r\n"
    head = "POST /v2/models/mlp/infer HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nContent-Type: application/json\r\n"
    return f"{head}{more}Content-Length: {len(text + tail)}\r\n\r\n".encode() + text + tail


def cpu_us(work: Callable[[], object]) -> float:
    """CPU microseconds of one call: the best of several rounds."""
    repeats = 1
    best = float("inf")
    for _ in range(ROUNDS):
        while True:
            begin = time.process_time()
            for _ in range(repeats):
                work()
            took = time.process_time() - begin
            if took > ROUND_SECONDS / 2:
                break
            repeats *= 2
        best = min(best, took / repeats)
    return best * 1e6


class Plane:
    """Answers at once, without a model; knows what it was asked before."""

    loaded = SimpleNamespace(model="mlp", version_text="1", parameters=None, outputs={"y": ANSWER.outputs[0].spec})
    checked = Checked(("y",), None, 1, 64, 256)

    def check_room(self, model: str) -> None:
        """There is."""

    def known(self, *_: object) -> tuple[LoadedVersion, Checked]:
        """It always is."""
        return cast("LoadedVersion", self.loaded), self.checked

    def refusal(self, *_: object) -> None:
        """There is none."""

    def apply(self, *arguments: Any) -> None:
        """Answer whom the fifth argument names."""
        arguments[4]([ANSWER.outputs[0].array])

    def submit(self, request: InferRequest, on_answer: Answered) -> None:
        """Answer."""
        on_answer(ANSWER)


class Transport:
    """Takes what is written."""

    def write(self, data: bytes) -> None:
        """Take it."""

    def is_closing(self) -> bool:
        """It never is."""
        return False

    def get_extra_info(self, _: str) -> None:
        """It knows nothing of its peer."""


def receive(receiver: Receiver, budget: ByteBudget, data: bytes) -> HttpRequest:
    """One request through a receiver."""
    receiver.feed(data)
    request = receiver.arrived.popleft()
    if not isinstance(request, HttpRequest):
        raise TypeError(request.message)
    budget.release(request.reserved)
    return request


def decode(request: HttpRequest) -> object:
    """Read a request."""
    return decode_request(request, recognise(request, MAX_JSON), "mlp", "", MAX_JSON)


def stages(shape: tuple[int, ...], binary: bool) -> Iterator[tuple[str, float]]:
    """Each stage of one kind of request and the time it takes."""
    data = wire(shape, binary)
    budget = ByteBudget(2**30)
    quick, plain = QuickReceiver(LIMITS, budget), Receiver(LIMITS, budget)
    request = receive(quick, budget, data)
    different = [receive(plain, budget, wire(shape, binary, str(number))) for number in range(2000)]
    turn = itertools.cycle(different)
    form = AnswerFormat("", frozenset(), binary)
    yield "receive, head known", cpu_us(lambda: receive(quick, budget, data))
    yield "receive, parser alone", cpu_us(lambda: receive(plain, budget, data))
    yield "decode, template known", cpu_us(lambda: decode(request))
    yield "decode, id changes", cpu_us(lambda: decode(next(turn)))
    yield "encode", cpu_us(lambda: encode_result(ANSWER, form).encode(request, keep_alive=True))
    yield "all of it, bytes to bytes", asyncio.run(connection_us([data]))
    others = [wire(shape, binary, str(number)) for number in range(2)]
    yield "all of it, id changes", asyncio.run(connection_us(others))


async def connection_us(different: list[bytes]) -> float:
    """From the bytes of a request to those of its answer, requests taking turns."""
    routes = Routes(
        cast("DataPlane", Plane()), cast("Any", None), lambda *_: None, MAX_JSON, cast("Any", None), Operators()
    )
    connection = HttpConnection(routes.handle, LIMITS, ByteBudget(2**30), Connections())
    connection.connection_made(cast("asyncio.Transport", Transport()))
    turn = itertools.cycle(different)
    found = cpu_us(lambda: connection.data_received(next(turn)))
    connection.connection_lost(None)
    return found


def main() -> None:
    """Print a table."""
    for name, shape in SHAPES.items():
        for binary in (False, True):
            print(f"{name}, {'binary' if binary else 'JSON'}")
            for stage, took in stages(shape, binary):
                print(f"  {stage:28s} {took:7.2f} us")


if __name__ == "__main__":
    main()
