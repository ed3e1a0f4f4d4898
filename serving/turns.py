"""Whose turn it is: a fair order, by weight, among the models whose calls wait for a thread.

Start-time fair queueing: each model has a virtual time that runs on by a call's CPU seconds over the model's weight,
and the model that is furthest behind comes first. One that had nothing to do starts where the others are, so that it
cannot save up turns. A model over its CPU cap is passed over until it has earned enough; nobody waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tiercel.serving.accounts import Account
    from tiercel.serving.executor import PendingCall


class Turns:
    """The calls that wait, by account; used on the event loop only."""

    def __init__(self) -> None:
        self._backlogged: dict[Account, None] = {}
        self._virtual = 0.0

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits."""
        return not self._backlogged

    def add(self, call: PendingCall, account: Account) -> None:
        """Let a call wait."""
        if not account.waiting:
            account.tag = max(account.tag, self._virtual)
            self._backlogged[account] = None
        account.waiting[call] = None

    def discard(self, call: PendingCall, account: Account) -> None:
        """A call does not wait any more."""
        account.waiting.pop(call, None)
        if not account.waiting:
            self._backlogged.pop(account, None)

    def take(self, now: float) -> PendingCall | None:
        """The call whose turn it is, which then waits no more; None where nobody may run.

        Args:
            now: Seconds of a steady clock.
        """
        able = [account for account in self._backlogged if account.may_run(now)]
        if not able:
            return None
        first = min(able, key=_tag)
        call = next(iter(first.waiting))
        self.discard(call, first)
        return call

    def begin(self, account: Account) -> float:
        """A call of this account begins; returns the CPU seconds it is expected to take, for :meth:`end`."""
        self._virtual = max(self._virtual, account.tag)
        account.tag = max(account.tag, self._virtual) + account.cost / account.share.cpu_weight
        return account.cost

    def end(self, account: Account, expected: float, cpu_seconds: float) -> None:
        """It ended and took ``cpu_seconds``."""
        account.charge(cpu_seconds)
        account.tag += (cpu_seconds - expected) / account.share.cpu_weight

    def seconds_to_next(self) -> float | None:
        """How long until one that is over its cap may run again; None when nobody waits for that."""
        waits = [account.seconds_until_it_may() for account in self._backlogged]
        return min((wait for wait in waits if wait > 0), default=None)


def _tag(account: Account) -> float:
    return account.tag
