"""The loops of a job, where a library has loops of its own and calls back."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tiercel.trainer_agent.trainer.job import Job


class CallbackLoop:
    """A job's epochs and steps, one at a time.

    Args:
        epochs: How many the whole training has.
    """

    def __init__(self, job: Job, epochs: int) -> None:
        self._job, self._epochs = job, job.epochs(epochs)
        self._steps: Iterator[None] = iter(())

    def next_epoch(self) -> int | None:
        """End the epoch, and begin the next one, counted from 1; None where the training has to end."""
        self.end_steps()
        return next(self._epochs, None)

    def begin_steps(self) -> bool:
        """The boundary before an epoch's first step; False where the training has to end."""
        self._steps = self._job.steps(itertools.repeat(None))
        return self.next_step()

    def next_step(self) -> bool:
        """The boundary before another step; False where the training has to end."""
        return next(self._steps, self) is not self

    def end_steps(self) -> None:
        """The last step of the epoch is over."""
        self._steps = iter(())
