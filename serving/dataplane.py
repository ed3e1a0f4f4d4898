"""Inference without a transport: check a request against its model, run it, answer. REST and gRPC translate to this."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tiercel import __version__
from tiercel.serving.accounts import ModelShare
from tiercel.serving.errors import InvalidRequestError, ServingError
from tiercel.serving.executor import Call, Executor
from tiercel.serving.loop_lag import LoopLag
from tiercel.serving.registry import Registry
from tiercel.serving.tensors import Array, DataType, TensorSpec

ParameterValue = bool | int | float | str

# In Triton's words.
EXTENSIONS = (
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "model_repository(unload_dependents)",
    "parameters",
    "schedule_policy",
    "statistics",
)


@dataclass(slots=True)
class InputTensor:
    """An input as the caller sent it; ``array`` has the type and shape that were declared."""

    name: str
    data_type: DataType
    array: Array


@dataclass(slots=True)
class InferRequest:
    """A question to a model.

    Attributes:
        model: Its name.
        version: The only version that will do, or empty for whichever is live.
        inputs: What is given.
        outputs: Names of the outputs that are wanted; empty for all.
        timeout: Seconds in which the answer is of use, or None for the server's default.
        priority: 1 is served first; 0 is the model's default (Triton's convention).
        minimum_accuracy: The least accuracy, a fraction, that a variant must have to answer, or None for any.
        classes: Outputs wanted as their largest classes, and how many (classification extension); None for none.
        arrived: When its first byte was read, as ``time.perf_counter`` has it; 0 for when it is submitted. What a
            caller is held to wait is counted from here.
    """

    model: str
    version: str
    inputs: list[InputTensor]
    outputs: list[str] = field(default_factory=list)
    timeout: float | None = None
    priority: int = 0
    minimum_accuracy: float | None = None
    classes: Mapping[str, int] | None = None
    arrived: float = 0.0


@dataclass(frozen=True, slots=True)
class OutputTensor:
    """An output: its specification and its value."""

    spec: TensorSpec
    array: Array


@dataclass(frozen=True, slots=True)
class InferResult:
    """An answer and the version that gave it.

    Attributes:
        model: The name that was asked.
        version: The version that answered.
        outputs: What was wanted, in the order in which it was asked.
        parameters: What else the caller is told, as the response's parameters; None for nothing.
    """

    model: str
    version: str
    outputs: list[OutputTensor]
    parameters: Mapping[str, ParameterValue] | None = None


Answered = Callable[[InferResult | ServingError], None]


class DataPlane:
    """Answers requests with what is live.

    Args:
        registry: What is live.
        executor: Runs models.
        timeout: Seconds in which a request is answered at the latest.

    Attributes:
        loop_lag: How late the event loop comes; whoever runs the loop has it watched.
    """

    def __init__(self, registry: Registry, executor: Executor, timeout: float) -> None:
        self._registry = registry
        self._executor = executor
        self._timeout = timeout
        self._began = time.perf_counter()
        self.loop_lag = LoopLag(self._began)

    def submit(self, request: InferRequest, on_answer: Answered) -> None:
        """Answer a request now or later; called on the event loop.

        Args:
            request: The question.
            on_answer: Called once, on the event loop, possibly before this returns.
        """
        try:
            loaded = self._registry.live(request.model, request.version)
            feeds = _feeds(request, loaded.session.inputs)
            names = _outputs(request.outputs, loaded.session.outputs)
        except ServingError as error:
            on_answer(error)
            return
        begin = time.perf_counter()
        arrived = request.arrived or begin
        statistics, account = loaded.statistics, loaded.account
        account.requests += 1

        def answered(result: list[Array] | ServingError, compute: float) -> None:
            now = time.perf_counter()
            if isinstance(result, ServingError):
                statistics.failed(result, now, now - begin)
                account.delays.failed(now)
                on_answer(result)
                return
            statistics.executed(1, compute)
            statistics.succeeded(now, now - begin, compute)
            specs = loaded.outputs
            tensors = [OutputTensor(specs[name], array) for name, array in zip(names, result, strict=True)]
            on_answer(InferResult(loaded.model, loaded.version_text, tensors))
            now = time.perf_counter()
            account.delays.answered(now - arrived, now)

        timeout = self._timeout if request.timeout is None else min(self._timeout, request.timeout)
        elements = sum(feed.size for feed in feeds.values())
        size = sum(feed.nbytes for feed in feeds.values())
        loaded.acquire()
        try:
            call = Call(loaded.session, feeds, names, elements, size, timeout, answered, loaded.release, account)
            self._executor.submit(call)
        except ServingError as error:
            loaded.release()
            account.delays.failed(begin)
            statistics.failed(error, begin)
            on_answer(error)

    async def infer(self, request: InferRequest) -> InferResult:
        """Answer a request.

        Raises:
            ServingError: It cannot be answered; see :mod:`tiercel.serving.errors`.
        """
        answer: asyncio.Future[InferResult] = asyncio.get_running_loop().create_future()

        def on_answer(result: InferResult | ServingError) -> None:
            if answer.done():  # the caller went away
                return
            if isinstance(result, ServingError):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        self.submit(request, on_answer)
        return await answer

    def usage(self, since: float = 0.0) -> dict[str, Any]:
        """What the requests of each model took since the server began, and what they may take.

        Args:
            since: Uptime in seconds: models that nobody asked anything from then on are left out; 0 for all models.
        """
        now = time.perf_counter()
        at = self._began + since
        accounts = self._registry.accounts()
        return {
            "uptime_seconds": now - self._began,
            "loop_lag": self.loop_lag.as_json(now),
            "models": [account.as_json(now) for account in accounts if not since or account.changed_since(at)],
        }

    def declare_shares(self, shares: dict[str, ModelShare]) -> None:
        """Models may use this much from now on; those not named are not limited."""
        self._registry.declare_shares(shares)
        self._executor.shares_changed(limited=any(share.is_limited for share in shares.values()))

    def is_ready(self) -> bool:
        """Whether all models that were on disk at the start have been tried."""
        return self._registry.ready

    def is_model_ready(self, model: str, version: str = "") -> bool:
        """Whether this model, and version if one is named, answers."""
        try:
            self._registry.live(model, version)
        except ServingError:
            return False
        return True

    def server_metadata(self) -> dict[str, Any]:
        """Name, version and extensions of the server."""
        return {"name": "tiercel", "version": __version__, "extensions": list(EXTENSIONS)}

    def model_metadata(self, model: str, version: str = "") -> dict[str, Any]:
        """Inputs and outputs of a model.

        Raises:
            NotFoundError: It is not loaded, or not in this version.
            NotReadyError: It is being loaded for the first time.
        """
        loaded = self._registry.live(model, version)
        return {
            "name": model,
            "versions": [loaded.version_text],
            "platform": "onnxruntime_onnx",
            "inputs": _described(loaded.session.inputs),
            "outputs": _described(loaded.session.outputs),
        }


def _described(specs: Mapping[str, TensorSpec]) -> list[dict[str, Any]]:
    return [{"name": spec.name, "datatype": spec.data_type.name, "shape": list(spec.shape)} for spec in specs.values()]


def _feeds(request: InferRequest, specs: Mapping[str, TensorSpec]) -> dict[str, Array]:
    feeds: dict[str, Array] = {}
    for tensor in request.inputs:
        spec = specs.get(tensor.name)
        if spec is None:
            raise InvalidRequestError(
                f"input '{tensor.name[:100]}' is unknown; model '{request.model}' takes {', '.join(specs) or 'none'}"
            )
        if tensor.name in feeds:
            raise InvalidRequestError(f"input '{tensor.name}' is given twice")
        _check(tensor, spec)
        feeds[tensor.name] = tensor.array
    if len(feeds) != len(specs):
        missing = ", ".join(f"'{name}'" for name in specs if name not in feeds)
        raise InvalidRequestError(f"input {missing} of model '{request.model}' is missing")
    return feeds


def _check(tensor: InputTensor, spec: TensorSpec) -> None:
    if tensor.data_type is not spec.data_type:
        raise InvalidRequestError(
            f"input '{tensor.name}': datatype is {tensor.data_type.name}, but the model takes {spec.data_type.name}"
        )
    shape = tensor.array.shape
    if len(shape) != len(spec.shape) or any(
        wanted not in (-1, size) for size, wanted in zip(shape, spec.shape, strict=True)
    ):
        raise InvalidRequestError(
            f"input '{tensor.name}': shape is {list(shape)}, but the model takes {list(spec.shape)} (-1 is any size)"
        )


def _outputs(wanted: list[str], specs: Mapping[str, TensorSpec]) -> list[str]:
    if not wanted:
        return list(specs)
    for name in wanted:
        if name not in specs:
            raise InvalidRequestError(f"output '{name[:100]}' is unknown; the model gives {', '.join(specs)}")
    if len(set(wanted)) != len(wanted):
        raise InvalidRequestError("outputs names an output twice")
    return wanted
