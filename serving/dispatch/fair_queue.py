"""Whose turn it is: a fair order, by weight, among the models whose calls wait for a thread.

Start-time fair queueing: each model has a virtual time that runs on by a call's CPU seconds over the model's weight,
and the model that is furthest behind comes first. One that had nothing to do starts where the others are, so that it
cannot save up turns. A model over its CPU cap is passed over until it has earned enough; nobody waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiercel.serving.accounting.accounts import Account
    from tiercel.serving.dispatch.call import QueuedCall


class FairQueue:
    """The calls that wait, by account; used on the event loop only.

    Args:
        queue_delay: Seconds that a call may wait for others to fill its batch while a thread is free, where nothing
            is set for its model.
    """

    def __init__(self, queue_delay: float = 0.0) -> None:
        self._queue_delay = queue_delay
        self._backlogged: dict[Account, None] = {}
        self._virtual = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits."""
        return not self._backlogged

    def add(self, call: QueuedCall, account: Account) -> None:
        """Let a call wait."""
        if not account.waiting:
            account.tag = max(account.tag, self._virtual)
            self._backlogged[account] = None
        account.waiting.add(call)

    def discard(self, call: QueuedCall, account: Account) -> None:
        """A call does not wait any more."""
        account.waiting.discard(call)
        self.taken(account)

    def taken(self, account: Account) -> None:
        """Calls of this account do not wait any more."""
        if not account.waiting:
            self._backlogged.pop(account, None)

    def choose(self, now: float) -> tuple[Account, QueuedCall] | None:
        """Whose turn it is, and its next call; None where nobody may run.

        Args:
            now: Seconds of the clock of the calls.
        """
        able = [account for account in self._backlogged if account.may_run(now)]
        able.sort(key=_tag)
        for account in able:
            first = account.waiting.first()
            if first is not None and self._unripe(account, first, now) <= 0:
                return account, first
        return None

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
        waits: list[float] = []
        for account in self._backlogged:
            first = account.waiting.first()
            wait = account.seconds_until_it_may()
            waits.append(wait if first is None else max(wait, self._unripe(account, first, now)))
        return min((wait for wait in waits if wait > 0), default=None)

    def _unripe(self, account: Account, first: QueuedCall, now: float) -> float:
        """Seconds for which this call waits for company."""
        delay = first.session.settings.max_queue_delay
        if delay is None:
            delay = self._queue_delay
        if not delay or account.waiting.is_full(first):
            return 0.0
        return first.begin + delay - now


def _tag(account: Account) -> float:
    return account.tag
