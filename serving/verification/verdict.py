"""What a check of an artefact found; apart from the checks, so that the server need not import what they import."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

MAX_MESSAGE_BYTES: Final = 64 * 1024
"""Largest message between the server and the process that checks."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """An artefact that passed.

    Attributes:
        sha256: Of the ONNX file, for whoever wants to know later what was loaded.
        shapes: Shape of each input in the reference; empty without one.
        has_loop: Its running time depends on the values of its inputs.
        weight_bytes: Bytes of its initializers and constants, from which its size on an accelerator is estimated.
    """

    sha256: str
    shapes: dict[str, list[int]] = field(default_factory=dict)
    has_loop: bool = False
    weight_bytes: int = 0
