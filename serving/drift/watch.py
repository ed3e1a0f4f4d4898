"""Looks whether what a version is asked is like what it was asked at first. Pure; on the event loop only.

One row of a request is taken now and then, and reduced to a few numbers (:mod:`.features`). The first :data:`ROWS` rows
are the reference. The last as many are compared with them each time that a fifth of them is new: each number by the
largest difference of the two cumulated frequencies (Kolmogorov and Smirnov). Two samples of one distribution, whatever
it is, differ by ``d`` or more with a probability of no more than ``2 exp(-d² n)`` for ``n`` rows each (F. Wei and R. M.
Dudley, 2012: Two-sample Dvoretzky-Kiefer-Wolfowitz inequalities, Statistics and Probability Letters 82, for n from
458 on). All numbers of a row together may cry wolf once in :data:`1 / FALSE_ALARM` looks (Bonferroni).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tiercel.core.drift import MOST_FEATURES_TOLD
from tiercel.serving.drift.features import Features
from tiercel.serving.tensors import Array, TensorSpec

_logger = logging.getLogger(__name__)

ROWS: Final = 500
NEW_ROWS: Final = 100  # of them, from one look to the next
FALSE_ALARM: Final = 1e-5  # of a look
# What is this likely of equal distributions is no reason to say any longer that they differ.
_CALM: Final = 0.05

Floats = npt.NDArray[np.float64]


def bound_of(features: int, false_alarm: float) -> float:
    """The distance that one of so many numbers exceeds at most as often as that without any change."""
    return math.sqrt(math.log(2 * features / false_alarm) / ROWS)


def distances(reference: Floats, recent: Floats) -> Floats:
    """Kolmogorov's and Smirnov's distance of each number; both are of shape [rows, numbers], the reference sorted."""
    recent = np.sort(recent, axis=0)
    found = []
    for before, now in zip(reference.T, recent.T, strict=True):
        points = np.concatenate([before, now])
        parts = [np.searchsorted(each, points, side="right") / len(each) for each in (before, now)]
        found.append(np.abs(parts[0] - parts[1]).max())
    return np.asarray(found)


class InputWatch:
    """What is kept of what one version is asked: two times :data:`ROWS` rows of some numbers, 256 kB at most.

    Attributes:
        taken_at: When the last row was taken, by the same clock.
        due: When the next row is taken, by the clock of requests, seconds; infinite while nothing is watched.
    """

    __slots__ = (
        "_begun",
        "_count",
        "_distances",
        "_draw",
        "_drifted",
        "_features",
        "_interval",
        "_keep",
        "_recent",
        "_reference",
        "due",
        "taken_at",
    )  # fmt: skip

    def __init__(self) -> None:
        self.due = math.inf
        self.taken_at = -math.inf
        self._begun = False
        self._count = 0
        self._drifted = False
        self._distances: Floats | None = None
        self._reference: Floats | None = None

    def begin(
        self,
        specs: Mapping[str, TensorSpec],
        interval: float,
        draw: Random,
        known: Mapping[str, Any] | None = None,
        keep: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        """Watch from now on; one that watches already goes on.

        Args:
            specs: What the version takes.
            interval: Seconds from one row to the next, on average.
            draw: Draws rows and times.
            known: A reference that was kept before, as ``keep`` got it; what does not fit is no reference.
            keep: Called once with the reference when that is complete.
        """
        if self._begun:
            return
        self._features = Features(specs, draw)
        if not self._features.labels:
            return
        self._begun, self._draw, self._interval, self._keep = True, draw, interval, keep
        self._recent: Floats = np.empty((ROWS, len(self._features.labels)))
        self._reference = _read(known, self._features.labels)
        self.due = 0.0

    def take(self, feeds: Mapping[str, Array], now: float) -> None:
        """Take a row of a request that was answered.

        Args:
            feeds: Its inputs by name, checked.
            now: The clock.
        """
        # At times that nobody can foresee, so that what comes at regular ones is not taken every time, or never.
        self.taken_at = now
        self.due = now + self._interval * (0.5 + self._draw.random())
        try:
            numbers = self._features.numbers(feeds)
        except Exception:  # the border: whatever a request has in it, looking at it fails nobody
            _logger.exception("What a version is asked cannot be compared; it is not looked at any more")
            self.due = math.inf
            return
        if not numbers:
            return
        self._recent[self._count % ROWS] = numbers
        self._count += 1
        if self._reference is None:
            if self._count == ROWS:
                self._reference, self._count = np.sort(self._recent, axis=0), 0
                if self._keep is not None:
                    self._keep({"labels": self._features.labels, "rows": self._reference.tolist()})
        elif self._count >= ROWS and self._count % NEW_ROWS == 0:
            self._look(self._reference)

    def as_json(self) -> dict[str, Any] | None:
        """For whoever watches the server; None before anything was taken."""
        if not self._begun or (self._reference is None and not self._count):
            return None
        labels, found = self._features.labels, self._distances
        order = [] if found is None else np.argsort(-found, kind="stable")[:MOST_FEATURES_TOLD].tolist()
        return {
            "rows": 0 if found is None else ROWS,
            "reference_rows": self._count if self._reference is None else ROWS,
            "features": len(labels),
            "drifted": self._drifted,
            "bound": bound_of(len(labels), FALSE_ALARM),
            "farthest": [] if found is None else [{"name": labels[n], "distance": float(found[n])} for n in order],
        }

    def _look(self, reference: Floats) -> None:
        self._distances = distances(reference, self._recent)
        farthest = float(self._distances.max())
        if farthest > bound_of(self._distances.size, FALSE_ALARM):
            self._drifted = True
        elif farthest <= bound_of(self._distances.size, _CALM):
            self._drifted = False


def _read(known: Mapping[str, Any] | None, labels: tuple[str, ...]) -> Floats | None:
    """A reference that was kept, if it is one of these numbers."""
    if known is None or known.get("labels") != list(labels):
        return None
    try:
        rows = np.asarray(known.get("rows"), dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return np.sort(rows, axis=0) if rows.shape == (ROWS, len(labels)) else None
