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
    """A request to a model."""

    model: str  # its name
    version: str  # the only version that will do, or empty for whichever is live
    inputs: list[InputTensor]  # what is given
    outputs: list[str] = field(default_factory=list)  # names of the outputs that are wanted; empty for all
    timeout: float | None = None  # seconds in which the answer is of use, or None for the server's default
    priority: int = 0  # 1 is served first; 0 is the model's default (Triton's convention)
    # The least accuracy, a fraction, that who answers must have, as far as known; None for any.
    minimum_accuracy: float | None = None
    # Outputs wanted as their largest classes, and how many (classification extension); None for none.
    classes: Mapping[str, int] | None = None
    # When its first byte was read, as ``time.perf_counter`` has it; 0 for when it is submitted. What a caller is held
    # to wait is counted from here.
    arrived: float = 0.0
    id: str = ""  # its own id, by which it can be asked for later; empty for none
    # What it has in common with others, if a transport recognises that; :meth:`DataPlane.apply` takes the next ones.
    template: Template | None = None


@dataclass(slots=True)
class OutputTensor:
    """An output: its specification and its value."""

    spec: TensorSpec
    array: Array


@dataclass(slots=True)
class InferResult:
    """An answer and the version that gave it."""

    model: str  # the name that was asked
    version: str  # the version that answered
    outputs: list[OutputTensor]  # what was wanted, in the order in which it was asked
    # What else the caller is told, as the response's parameters; None for nothing.
    parameters: Mapping[str, ParameterValue] | None = None


Answered = Callable[[InferResult | TiercelError], None]


@dataclass(frozen=True, slots=True)
class Checked:
    """What is known of all requests of one template to one version, once one of them was checked."""

    outputs: tuple[str, ...]  # names of the outputs to compute
    key: Any  # what calls must have in common to run together; None for those that run alone
    rows: int  # rows of every input; 1 for a call that runs alone
    elements: int  # elements of all inputs together
    size: int  # bytes of all inputs together
