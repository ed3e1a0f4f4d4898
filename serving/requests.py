"""What is asked and answered, without a transport: REST and gRPC translate to this, and everything below speaks it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tiercel.core.errors import TiercelError
from tiercel.serving.tensors import Array, DataType, TensorSpec

ParameterValue = bool | int | float | str


@dataclass(slots=True)
class InputTensor:
    """An input as the caller sent it; ``array`` has the type and shape that were declared."""

    name: str
    data_type: DataType
    array: Array


class Template(Protocol):
    """What requests that a transport recognises have in common."""

    @property
    def timeout(self) -> float | None:
        """See :class:`InferRequest`."""

    @property
    def priority(self) -> int:
        """See :class:`InferRequest`."""


@dataclass(slots=True)
class InferRequest:
    """A request to a model.

    Attributes:
        model: Its name.
        version: The only version that will do, or empty for whichever is live.
        inputs: What is given.
        outputs: Names of the outputs that are wanted; empty for all.
        timeout: Seconds in which the answer is of use, or None for the server's default.
        priority: 1 is served first; 0 is the model's default (Triton's convention).
        minimum_accuracy: The least accuracy, a fraction, that who answers must have, as far as known; None for any.
        classes: Outputs wanted as their largest classes, and how many (classification extension); None for none.
        id: Its own id, by which it can be asked for later; empty for none.
        template: What it has in common with others, if a transport recognises that; :meth:`DataPlane.apply` takes the
            next ones.
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
    id: str = ""
    template: Template | None = None


@dataclass(slots=True)
class OutputTensor:
    """An output: its specification and its value."""

    spec: TensorSpec
    array: Array


@dataclass(slots=True)
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


Answered = Callable[[InferResult | TiercelError], None]


@dataclass(frozen=True, slots=True)
class Checked:
    """What is known of all requests of one template to one version, once one of them was checked.

    Attributes:
        outputs: Names of the outputs to compute.
        key: What calls must have in common to run together; None for those that run alone.
        rows: Rows of every input; 1 for a call that runs alone.
        elements: Elements of all inputs together.
        size: Bytes of all inputs together.
    """

    outputs: tuple[str, ...]
    key: Any
    rows: int
    elements: int
    size: int
