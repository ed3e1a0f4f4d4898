"""A script that runs alone: the loops go round and the metrics are printed, nothing else happens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tiercel.trainer_agent.trainer.job import Item, Job
from tiercel.trainer_agent.trainer.rank import Rank
from tiercel.trainer_agent.trainer.reporting import as_numbers, epoch_of, report_line, say


class StandaloneJob(Job):
    """A job of nobody."""

    _epoch = 0
    _counts = False  # whether the script goes through epochs(), which then say which one it is

    @property
    def is_attached(self) -> bool:
        """Never."""
        return False

    @property
    def is_stopping(self) -> bool:
        """Never: there is nobody to ask."""
        return False

    def epochs(self, count: int) -> Iterator[int]:
        """1 to ``count``."""
        while self._epoch < count:
            self._epoch += 1
            self._counts = True
            yield self._epoch

    def steps(self, batches: Iterable[Item]) -> Iterator[Item]:
        """The batches as they are."""
        yield from batches

    def report(self, **metrics: float) -> None:
        """Print the metrics as one line, in the first of several ranks."""
        numbers = as_numbers(metrics)
        if not self._counts:
            self._epoch = epoch_of(numbers, self._epoch)
        if Rank.of_process().number == 0:
            say(report_line(self._epoch, numbers))

    def close(self) -> None:
        """There is nothing to deliver."""
