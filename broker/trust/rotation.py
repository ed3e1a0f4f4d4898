"""Another authority takes the place of the broker's while everything goes on.

From the first step on the new one signs everything, nodes ask for a certificate by it within seconds, and both are
believed; what leads from the earlier one to it is shown to everybody. With the second step the earlier one is believed
no more. Each step is one file that is replaced, so that a broker that dies goes on where it was.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tiercel.broker.trust.authority import CLOCK_TOLERANCE
from tiercel.core.authority import AuthorityState
from tiercel.core.errors import CannotWriteError, ConflictError, NotFoundError
from tiercel.core.trust.certificates import pin_of

if TYPE_CHECKING:
    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.trust.authority import Authority
    from tiercel.broker.trust.kept_authority import KeptAuthority
    from tiercel.broker.trust.membership import Membership

logger = logging.getLogger(__name__)

KEPT_SECONDS = 7 * 86_400.0
"""How long pins, join lines and files of the earlier authority are good at least, if nobody says otherwise."""
TENANTS_SECONDS = 86_400.0
"""When the last certificate of a tenant by the earlier authority has run out."""


class Rotation:
    """Replaces the authority."""

    def __init__(self, kept: KeptAuthority, membership: Membership, clock: Clock) -> None:
        self._kept = kept
        self._membership = membership
        self._clock = clock
        # One step at a time: of two at once the second sees what the first has done.
        self._stepping = asyncio.Lock()

    def state(self) -> AuthorityState:
        """Which authority there is, and how far its rotation is."""
        authority = self._kept.current
        if authority.earlier is None:
            return AuthorityState(authority.pin)
        begun_at = (authority.certificate.not_valid_before_utc + CLOCK_TOLERANCE).timestamp()
        return AuthorityState(
            authority.pin,
            pin_of(authority.earlier),
            begun_at,
            begun_at + KEPT_SECONDS,
            tuple(self._membership.behind()),
        )

    async def begin(self) -> AuthorityState:
        """The first step: make another authority, which signs from now on.

        Raises:
            ConflictError: A rotation is under way.
            CannotWriteError: The disk takes nothing.
        """
        async with self._stepping:
            if self._kept.current.earlier is not None:
                raise ConflictError(
                    "a rotation of the authority is under way already; 'tiercel authority show' says what it waits "
                    "for, and 'tiercel authority finish' ends it"
                )
            fresh = self._kept.current.successor(datetime.fromtimestamp(self._clock.now(), UTC))
            await self._put(fresh)
            logger.info("authority %s takes the place of the one before; both are believed", fresh.pin)
            return self.state()

    async def finish(self, *, force: bool = False) -> AuthorityState:
        """The second step: believe the earlier authority no more.

        Raises:
            NotFoundError: No rotation is under way.
            ConflictError: It would cut somebody off.
            UnavailableError: The database or the disk takes nothing.
        """
        async with self._stepping:
            state = self.state()
            if not state.earlier_pin:
                raise NotFoundError("no rotation of the authority is under way; 'tiercel authority rotate' begins one")
            if not force:
                self._check_that_nobody_is_cut_off(state)
            # First the list: a broker that dies in between has both authorities still, and nobody who waits.
            await self._membership.let_go_of_those_behind()
            await self._put(self._kept.current.alone())
            logger.info("authority %s is believed no more", state.earlier_pin)
            return self.state()

    def is_due(self) -> bool:
        """Whether the second step may be taken by itself: all nodes have turned, and the time is over."""
        state = self.state()
        return bool(state.earlier_pin) and not state.waiting and self._clock.now() >= state.ends_at

    def _check_that_nobody_is_cut_off(self, state: AuthorityState) -> None:
        if state.waiting:
            raise ConflictError(
                f"nodes {', '.join(state.waiting)} have no certificate by the new authority yet: they would have to "
                "join again. Start them, take them off the list with 'tiercel node remove NAME', or cut them off with "
                "--force"
            )
        if self._clock.now() < state.begun_at + TENANTS_SECONDS:
            raise ConflictError(
                "certificates that tenants were given before the rotation began are good for a day: programs that have "
                "one are refused by models, and for good where they know the broker by the earlier pin. Wait for that "
                "day, or cut them off with --force"
            )

    async def _put(self, authority: Authority) -> None:
        try:
            await asyncio.to_thread(self._kept.replace, authority)
        except OSError as error:
            raise CannotWriteError(
                f"the broker's authority cannot be replaced ({error}); make room on its disk"
            ) from error
