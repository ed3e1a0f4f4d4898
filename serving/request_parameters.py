"""Parameters of a request that mean the same over REST and gRPC: what they may be, and what they are here. Pure.

Values are as the transport has them; None is a parameter that was not given.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeGuard

from tiercel.core.errors import InvalidRequestError

SEQUENCE = ("sequence_id", "sequence_start", "sequence_end")
"""Triton's parameters for models that remember."""
_MAX_PRIORITY = 2**32 - 1
_MAX_CLASSES = 2**31 - 1


def timeout(value: object) -> float | None:
    """Triton's ``timeout`` in microseconds as seconds; 0 is none.

    Raises:
        InvalidRequestError: It is no such number.
    """
    if value is None:
        return None
    if not _is_whole(value) or value < 0:
        raise InvalidRequestError("parameter timeout must be a whole number of microseconds")
    return value / 1e6 if value else None


def priority(value: object) -> int:
    """Triton's ``priority``: 1 is served first; 0 is the model's default.

    Raises:
        InvalidRequestError: It is no such number.
    """
    if value is None:
        return 0
    if not _is_whole(value) or not 0 <= value <= _MAX_PRIORITY:
        raise InvalidRequestError("parameter priority must be a whole number from 0; 1 is served first")
    return value


def minimum_accuracy(value: object) -> float | None:
    """The least accuracy that will do, a fraction.

    Raises:
        InvalidRequestError: It is none.
    """
    if value is None:
        return None
    if not _is_number(value) or not 0 <= value <= 1:
        raise InvalidRequestError("parameter minimum_accuracy must be a number from 0 to 1")
    return float(value)


def classification(value: object, output: str) -> int | None:
    """How many classes are wanted of an output.

    Raises:
        InvalidRequestError: It is no such number.
    """
    if value is None:
        return None
    if not _is_whole(value) or not 0 < value <= _MAX_CLASSES:
        raise InvalidRequestError(f"output '{output}': parameter classification must be a whole number from 1")
    return value


def refuse_sequence(name: str, value: object) -> None:
    """Refuse one of :data:`SEQUENCE`; 0, the empty string and false say that there is none.

    Raises:
        InvalidRequestError: It says that there is one.
    """
    if value:
        raise InvalidRequestError(f"parameter {name}: models keep nothing between requests here; leave it out")


def refuse_shared_memory(parameters: Iterable[str], of: str, instead: str) -> None:
    """Refuse tensors in memory that is shared with the caller.

    Args:
        parameters: Names of the parameters of a tensor.
        of: The tensor, as messages call it.
        instead: What its caller may do with the data.

    Raises:
        InvalidRequestError: It is in shared memory.
    """
    if any(name.startswith("shared_memory") for name in parameters):
        raise InvalidRequestError(f"{of}: shared memory is not supported; {instead} the data")


def _is_whole(value: object) -> TypeGuard[int]:
    return type(value) is int  # true and false are none


def _is_number(value: object) -> TypeGuard[float]:
    return type(value) in (int, float)
