"""Whose turn it is: a fair order, by weight, among the models and endpoints whose calls wait for a thread.

Start-time fair queueing: each account has a virtual time that runs on by a run's CPU seconds over the account's weight,
and the account that is furthest behind comes first. One that had nothing to do starts where the others are, so that it
cannot save up turns. One over its CPU cap is passed over until it has earned enough, and one whose calls wait for
company, or because its scheduler says so, until they do not; nobody waits for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiercel.serving.accounting.accounts import Account
    from tiercel.serving.accounting.waiting import Source
    from tiercel.serving.dispatch.call import Call


class FairQueue:
    """The sources that have calls that wait, and whose they are; used on the event loop only.

    Args:
        queue_delay: Seconds that a call may wait for others to fill its batch while a thread is free, where nothing
            is set for its model.
    """

    def __init__(self, queue_delay: float) -> None:
        self._queue_delay = queue_delay
        self._backlogged: dict[Source, Account] = {}
        self._virtual = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits."""
        return not self._backlogged

    def add(self, call: Call) -> None:
        """Let a call wait."""
        source, account = call.source, call.account
        if not source:
            account.tag = max(account.tag, self._virtual)
            self._backlogged[source] = account
        source.add(call)

    def discard(self, call: Call) -> None:
        """A call does not wait any more."""
        call.source.discard(call)
        self._left(call.source)

    def take(self, now: float, *, idle: int, workers: int) -> list[Call]:
        """The calls that run next, of the source whose turn it is; they wait no more. None where nobody may run.

        Args:
            now: Seconds of the clock of the calls.
            idle: Workers that are free.
            workers: How many there are, busy ones included.
        """
        able = [(account.tag, source) for source, account in self._backlogged.items() if account.may_run(now)]
        able.sort(key=_tag)
        for _, source in able:
            calls = source.take(now, idle=idle, workers=workers, queue_delay=self._queue_delay)
            self._left(source)
            if calls or not idle:  # nobody runs ahead of one whose turn it is
                return calls
        return []

    def begin(self, account: Account, rows: int) -> float:
        """A run of this account begins; returns the CPU seconds it is expected to take, for :meth:`end`."""
        expected = account.cost * rows
        self._virtual = max(self._virtual, account.tag)
        account.tag = max(account.tag, self._virtual) + expected / account.share.cpu_weight
        return expected

    def end(self, account: Account, expected: float, cpu_seconds: float, rows: int) -> None:
        """It ended and took ``cpu_seconds``."""
        account.charge(cpu_seconds, rows)
        account.tag += (cpu_seconds - expected) / account.share.cpu_weight

    def seconds_to_next(self, now: float) -> float | None:
        """How long until one may run that may not yet: over its cap, or waiting for company. None for no such."""
        waits = [
            max(account.seconds_until_it_may(), source.seconds_to_next(now, self._queue_delay))
            for source, account in self._backlogged.items()
        ]
        return min((wait for wait in waits if wait > 0), default=None)

    def _left(self, source: Source) -> None:
        if not source:
            self._backlogged.pop(source, None)


def _tag(able: tuple[float, Source]) -> float:
    return able[0]
