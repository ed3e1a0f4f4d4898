"""Asks nodes that are passed over whether they are back, ever less often: no caller waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tiercel.serving.routing.pool import Peer

FIRST_SECONDS: Final = 0.25
"""After a node was found silent, until it is asked."""
MOST_SECONDS: Final = 4.0
"""Between two trials."""
_GROWTH: Final = 2.0
_TICK_SECONDS: Final = 0.1


Place = tuple[str, str]
"""A node, and where it is asked."""


@dataclass(slots=True)
class _Trial:
    place: Place
    at: float
    pause: float = FIRST_SECONDS


class Trials:
    """Owns what is known of nodes that are passed over.

    Args:
        is_known: Whether a node answers for anything there still, as far as this server was told.
    """

    def __init__(self, is_known: Callable[[Place], bool], clock: Callable[[], float]) -> None:
        self._is_known = is_known
        self._clock = clock
        self._trials: dict[Peer, _Trial] = {}
        self._begun = asyncio.Event()

    def pass_over(self, peer: Peer, place: Place) -> None:
        """Nothing came back from there."""
        if peer.hearing.is_silent:
            return
        peer.hearing.is_silent = True
        peer.let_go()
        self._trials[peer] = _Trial(place, self._clock() + FIRST_SECONDS)
        self._begun.set()

    async def run(self) -> None:
        """Ask for ever."""
        while True:
            await self._begun.wait()
            await self.ask_those_due()
            if self._trials:
                await asyncio.sleep(_TICK_SECONDS)
            else:
                self._begun.clear()

    async def ask_those_due(self) -> None:
        """Ask those whose time has come, and forget those that were heard."""
        for peer, trial in list(self._trials.items()):
            if not self._is_known(trial.place):
                peer.hearing.heard(self._clock())  # if it is told of again, nothing is known of it
            if not peer.hearing.is_silent:
                del self._trials[peer]
        now = self._clock()
        due = {peer: trial for peer, trial in self._trials.items() if trial.at <= now}
        if not due:
            return
        await asyncio.gather(*(peer.try_out() for peer in due))
        for trial in due.values():
            trial.pause = min(_GROWTH * trial.pause, MOST_SECONDS)
            trial.at = self._clock() + trial.pause
