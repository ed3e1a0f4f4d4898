"""What a server does on either side of a hand-over; how they talk is in :mod:`tiercel.serving.process.handover`."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from tiercel.core.errors import SetupError, TiercelError, UnavailableError
from tiercel.serving.accounting.accounts import read_shares
from tiercel.serving.dataplane import DataPlane
from tiercel.serving.loading.lifecycle import Lifecycle
from tiercel.serving.models.registry import Registry
from tiercel.serving.process import carried as carry
from tiercel.serving.process import handover
from tiercel.serving.process.carried import Carried
from tiercel.serving.process.handover import Inheritance, Predecessor, Successor

_logger = logging.getLogger(__name__)


class Renewal:
    """Hands over to a fresh process.

    Args:
        announce: Writes the state file anew, after another process may have.
        leave: Called when the fresh process has taken over.
    """

    def __init__(
        self,
        inheritance: Inheritance,
        lifecycle: Lifecycle,
        registry: Registry,
        announce: Callable[[], None],
        leave: Callable[[], None],
    ) -> None:
        self._inheritance = inheritance
        self._lifecycle = lifecycle
        self._registry = registry
        self._announce = announce
        self._leave = leave
        self._is_under_way = False
        self._is_leaving = False
        self._following: Successor | None = None

    async def hand_over(self) -> int:
        """Start a process with everything that is live here and let it take over; this one then leaves.

        Returns:
            The other's process id.

        Raises:
            UnavailableError: It did not get that far; this one goes on as before.
        """
        if self._is_leaving:
            raise UnavailableError("the server is leaving, and nobody is to follow it; start another one")
        if self._is_under_way:
            raise UnavailableError("the server is handing over already; the process that follows answers soon")
        self._is_under_way = True
        try:
            async with handover.successor(self._inheritance) as following:
                self._following = following
                await following.send_state(self._lifecycle.live_versions(), self._shares())
                await following.expect("loaded")
                await self._lifecycle.pause()
                carried = Carried(self._lifecycle.trials(), self._registry.delays(time.perf_counter()))
                await following.send_state(self._lifecycle.live_versions(), self._shares(), carry.write(carried))
                await following.expect("ready")
        except BaseException:
            self._is_under_way = False
            self._following = None
            if not self._is_leaving:  # else nobody is to load anything here, or to be told of this process
                self._lifecycle.resume()
                self._announce()
            raise
        _logger.info("Process %d has taken over", following.pid)
        self._leave()
        return following.pid

    def break_off(self) -> None:
        """This server was asked to leave: nobody is to follow it, now or later."""
        self._is_leaving = True
        if self._following is not None:
            self._following.kill()

    async def on_signal(self) -> None:
        """Hand over for somebody who cannot be answered."""
        try:
            await self.hand_over()
        except UnavailableError as error:
            _logger.error("%s", error.message)  # noqa: TRY400 - there is no defect to trace

    def _shares(self) -> dict[str, Any]:
        return {"models": {name: dataclasses.asdict(share) for name, share in self._registry.shares.items()}}


async def take_over(
    predecessor: Predecessor,
    lifecycle: Lifecycle,
    registry: Registry,
    plane: DataPlane,
    begin: Callable[[], Awaitable[None]],
) -> None:
    """Get everything live that is live in the process before this one, go on with its trials and windows, then begin.

    Raises:
        SetupError: It cannot be done; the other process goes on.
    """
    async with predecessor.conversation() as conversation:
        for step in ("loaded", "ready"):
            wanted = await conversation.receive()
            if wanted is None:
                raise handover.gone(step)
            try:
                await lifecycle.load_exactly(wanted["versions"])
                plane.declare_shares(read_shares(wanted["shares"]))
            except TiercelError as error:
                await conversation.send({"failed": error.message})
                raise SetupError(f"This process cannot take over: {error.message}.") from error
            if step == "ready":
                carried = carry.read(wanted.get("carried"), time.perf_counter())
                await lifecycle.go_on_with(carried.trials)
                registry.continue_delays(carried.delays)
                await begin()
            await conversation.send({"is": step})
