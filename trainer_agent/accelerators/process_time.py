"""Accelerator time of processes, from the driver's samples of who computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

_PERCENT: Final = 100
_MICROSECONDS: Final = 1e6


@dataclass(frozen=True, slots=True)
class Sample:
    """In what part of a sample period a process computed."""

    pid: int  # the process
    at: int  # when the period ended, in microseconds of the driver's clock
    percent: int  # part of the period, 0 to 100; drivers are known to tell more now and then, which counts as nothing


class ProcessTime:
    """Adds up samples of one accelerator.

    A sample says what was the case in the last moment (a sixth of a second to a second, as the product has it), not
    since it was last asked: the seconds are an estimate, good for a cross-check.
    """

    def __init__(self) -> None:
        self.last_seen = 0
        """Time of the newest sample that was taken in, in microseconds; ask for younger ones. 0 at first."""

    def take(self, samples: Sequence[Sample], elapsed_seconds: float) -> dict[int, float]:
        """Accelerator seconds of each process since the call before; nothing at first, when samples are of the past.

        Args:
            samples: In any order; what was taken in before counts as nothing.
            elapsed_seconds: Time since the call before. No process gets more than that.
        """
        since, news = self.last_seen, [sample for sample in samples if sample.at > self.last_seen]
        self.last_seen = max((sample.at for sample in news), default=since)
        if not since:
            return {}
        news.sort(key=lambda sample: (sample.pid, sample.at, sample.percent))
        return {pid: _busy(list(of_one), since, elapsed_seconds) for pid, of_one in groupby(news, lambda one: one.pid)}


def _busy(samples: list[Sample], since: int, elapsed_seconds: float) -> float:
    """Seconds that samples of one process, in the order of time, stand for: each as long as the gap before it."""
    seconds, left = 0.0, elapsed_seconds
    starts = [since, *(sample.at for sample in samples[:-1])]
    for start, sample in reversed(list(zip(starts, samples, strict=True))):
        gap = min((sample.at - start) / _MICROSECONDS, left)
        left -= gap
        if 0 <= sample.percent <= _PERCENT:
            seconds += gap * sample.percent / _PERCENT
    return seconds
