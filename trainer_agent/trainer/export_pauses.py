"""How often a script exports a model that no tier waits for. Pure but for its clock."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import Final

logger = logging.getLogger(__name__)

LARGEST_FRACTION_OF_TIME: Final = 0.2
"""Such exports may take so much of the time from the end of one to the end of the next."""

SHORT_SECONDS: Final = 1.0
"""What takes no longer is never waited for."""


class ExportPauses:
    """After a long export the next has to wait, unless a tier needs it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._took = self._pause = 0.0
        self._ended_at = clock()
        self._has_said_so = False

    @property
    def is_over(self) -> bool:
        """Whether training has gone on for long enough since the last export."""
        return self._clock() - self._ended_at >= self._pause

    @contextlib.contextmanager
    def measuring(self) -> Iterator[None]:
        """An export happens in here."""
        started = self._clock()
        yield
        self._ended_at = self._clock()
        self._took = self._ended_at - started
        is_short = self._took <= SHORT_SECONDS
        self._pause = 0.0 if is_short else self._took * (1 / LARGEST_FRACTION_OF_TIME - 1)

    def say_so(self, epoch: int) -> None:
        """Tell once that a model was left out."""
        if self._has_said_so:
            return
        self._has_said_so = True
        logger.warning(
            "the model of epoch %d is the best so far and was not exported: export() took %.1f s, so that only a tier "
            "or the last epoch has another one exported in the %.1f s after it; make export() faster, or report less "
            "often",
            epoch,
            self._took,
            self._pause,
        )
