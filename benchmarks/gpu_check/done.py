"""How far a training has come on its device: what one process tells and another reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Done:
    """What is done on the device.

    Attributes:
        at: When the last step was done, in seconds of ``time.monotonic``, which all processes of a machine share.
        busy_seconds: Device time of all steps.
        steps: How many.
    """

    at: float
    busy_seconds: float = 0.0
    steps: int = 0
