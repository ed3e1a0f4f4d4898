"""What a check of an artefact found; apart from the checks, so that the server need not import what they import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tiercel.serving.runtime.measure import Batching
from tiercel.serving.runtime.profile import LatencyProfile

MAX_MESSAGE_BYTES: Final = 64 * 1024
"""Largest message between the server and the process that checks."""
_MAX_REASON = 300
_MAX_SECONDS = 3600.0
_MAX_BYTES = 2**48


@dataclass(frozen=True, slots=True)
class Verdict:
    """An artefact that passed."""

    # Shape of each input in the reference; empty without one.
    shapes: dict[str, list[int]] = field(default_factory=dict)
    has_loop: bool = False  # its running time depends on the values of its inputs
    weight_bytes: int = 0  # bytes of its initializers and constants, from which its size on an accelerator is estimated
    # What batching does to it on one thread of a CPU; None where that was not found out.
    batching: Batching | None = None
    loaded_bytes: int = 0  # bytes of memory that it took to load it


def read_verdict(answer: Mapping[str, Any], batch_rows: int) -> Verdict:
    """The verdict in an answer of the process that checks.

    What was measured there comes from a process that a hostile model has run in. So it is taken only in the form that
    an honest one has; what cannot be is left out, and the server measures by itself.

    Args:
        answer: A verdict as :func:`dataclasses.asdict` has it, from JSON.
        batch_rows: The largest batch that was asked about.

    Raises:
        ValueError: It is no verdict.
    """
    shapes, has_loop = answer.get("shapes"), answer.get("has_loop")
    weight_bytes, loaded_bytes = (_bytes(answer.get(name)) for name in ("weight_bytes", "loaded_bytes"))
    if type(has_loop) is not bool:
        raise ValueError("it is no verdict")
    if type(shapes) is not dict or not all(_is_shape(shape) for shape in shapes.values()):
        raise ValueError("it is no verdict")
    return Verdict(shapes, has_loop, weight_bytes, read_batching(answer.get("batching"), batch_rows), loaded_bytes)


def _bytes(said: Any) -> int:
    if type(said) is not int or not 0 <= said <= _MAX_BYTES:
        raise ValueError("it is no verdict")
    return said


def _is_shape(said: Any) -> bool:
    return type(said) is list and all(type(size) is int and size >= 0 for size in said)


def read_batching(said: Any, batch_rows: int) -> Batching | None:
    """What was found of batches; None where nothing was, or it has not the form that an honest process gives it.

    Args:
        said: As :func:`dataclasses.asdict` has it, from JSON.
        batch_rows: The largest batch that is of interest.
    """
    try:
        profile, reason, elements = said["profile"], said["reason"], said["elements"]
        if type(reason) is not str or type(elements) is not int or elements < 0:
            return None
        if profile is None:
            return Batching(None, " ".join(reason[:_MAX_REASON].split())) if reason else None
        rows, seconds = profile["rows"], profile["seconds"]
        if any(type(each) is not int for each in rows) or any(type(each) is not float for each in seconds):
            return None
        # NaN fails the comparison, too.
        if rows[0] != 1 or rows[-1] > batch_rows or not all(0.0 < each < _MAX_SECONDS for each in seconds):
            return None
        return Batching(LatencyProfile(tuple(rows), tuple(seconds)), "", elements)
    except (LookupError, TypeError, ValueError):
        return None
