"""Runs of the old version done again by the new one, off the request path, to compare what both say."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np

from tiercel.core.errors import TiercelError
from tiercel.serving.models.canary.judgement import Comparison, Split
from tiercel.serving.runtime.engine import Session
from tiercel.serving.tensors import BF16, Array

_logger = logging.getLogger(__name__)

_NOTHING = Comparison()


class Shadow:
    """Observes a session's runs and does a share of them again with another session.

    One comparison at a time: a run that comes while another is compared is let go, so nothing ever waits for this.

    Args:
        session: The new version's.
        fraction: Share of the runs that are compared.
        threads: Where the new version runs.
        so_far: What is known already.
    """

    def __init__(self, session: Session, fraction: float, threads: Executor, so_far: Comparison = _NOTHING) -> None:
        self._session = session
        self._split = Split(fraction)
        self._threads = threads
        self._busy = False
        self.comparison = so_far

    def __call__(self, outputs: Sequence[str], feeds: Mapping[str, Array], results: Sequence[Array]) -> None:
        """The old version has run; called in whichever thread it ran."""
        if self._busy or not self._split.takes_next():
            return
        self._busy = True
        # Buffers of requests may be used again once they are answered.
        copies = {name: feed.copy() for name, feed in feeds.items()}
        try:
            self._threads.submit(self._compare, list(outputs), copies, [result.copy() for result in results])
        except RuntimeError:  # the server leaves
            return

    def _compare(self, outputs: list[str], feeds: dict[str, Array], expected: list[Array]) -> None:
        try:
            self.comparison = compared(self.comparison, expected, self._session.run(outputs, feeds))
        except TiercelError:
            self.comparison = compared(self.comparison, expected, None)
        except Exception:  # whatever it is, the old version could do it
            _logger.exception("The version on trial failed, or what it gave cannot be compared")
            self.comparison = compared(self.comparison, expected, None)
        finally:
            self._busy = False


def compared(so_far: Comparison, expected: Sequence[Array], found: Sequence[Array] | None) -> Comparison:
    """A comparison with one more run in it.

    Args:
        so_far: What is known.
        expected: The old version's outputs.
        found: The new version's, or None when it failed.
    """
    if found is None:
        return Comparison(so_far.rows, so_far.agreed, so_far.failed + 1, so_far.difference)
    difference, agreed = so_far.difference, np.ones(_rows(expected[0]), np.bool_)
    for old, new in zip(expected, found, strict=True):
        if old.shape != new.shape or old.dtype != new.dtype:
            agreed[:] = False
            difference = float("inf")
            continue
        if old.dtype == BF16:  # scores, too, but of no kind that NumPy knows
            old, new = old.astype(np.float32), new.astype(np.float32)
        difference = max(difference, _difference(old, new))
        same = _agreement(old, new)
        agreed = agreed & same if same.shape == agreed.shape else agreed & same.all()
    return Comparison(so_far.rows + agreed.size, so_far.agreed + int(agreed.sum()), so_far.failed, difference)


def _rows(array: Array) -> int:
    return array.shape[0] if array.ndim > 1 else 1


def _difference(old: Array, new: Array) -> float:
    if old.dtype.kind not in "fiu" or not old.size:
        return 0.0
    with np.errstate(invalid="ignore"):  # infinity less infinity
        difference = np.abs(old.astype(np.float64) - new.astype(np.float64))
    # Where both say NaN or the same infinity, they say the same.
    same = (old == new) | ((old != old) & (new != new))
    largest = float(np.max(np.where(same, 0.0, difference)))
    return float("inf") if np.isnan(largest) else largest


def _agreement(old: Array, new: Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """For each row whether both say the same: the same largest element of scores, or equal values."""
    rows = _rows(old)
    if not old.size:
        return np.ones(rows, np.bool_)
    left, right = old.reshape(rows, -1), new.reshape(rows, -1)
    if left.dtype.kind == "f" and left.shape[1] > 1:
        return np.asarray(left.argmax(axis=1) == right.argmax(axis=1))
    if left.dtype.kind == "f":
        return np.ones(rows, np.bool_)  # one number has no largest element; max_difference is for these
    return np.asarray((left == right).all(axis=1))
