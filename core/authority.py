"""The broker's authority as its operator sees it: which one there is, and how far its rotation is."""

from __future__ import annotations

from dataclasses import dataclass

from tiercel.core.views import Jsonable


@dataclass(frozen=True, slots=True)
class AuthorityState(Jsonable):
    """The authority, and the one before it while that is believed as well.

    Attributes:
        pin: Stands for the authority that signs.
        earlier_pin: Stands for the one that it takes the place of; no rotation is under way where this is empty, as
            all below.
        begun_at: When that began, seconds since the Unix epoch.
        ends_at: When the earlier one goes by itself, if no node waits then.
        waiting: Nodes that were not here with a certificate by the new one.
    """

    pin: str
    earlier_pin: str = ""
    begun_at: float = 0.0
    ends_at: float = 0.0
    waiting: tuple[str, ...] = ()
