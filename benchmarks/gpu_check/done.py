"""How far a training has come on its device: what one process tells and another reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Done:
    """What is done on the device."""

    at: float  # when the last step was done, in seconds of ``time.monotonic``, which all processes of a machine share
    busy_seconds: float = 0.0  # device time of all steps
    steps: int = 0  # how many
