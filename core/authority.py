"""The broker's authority as its operator sees it: which one there is, and how far its rotation is."""

from __future__ import annotations

from dataclasses import dataclass

from tiercel.core.jsonable import Jsonable


@dataclass(frozen=True, slots=True)
class AuthorityState(Jsonable):
    """The authority, and the one before it while that is believed as well."""

    pin: str  # stands for the authority that signs
    # Stands for the one that it takes the place of; no rotation is under way where this is empty, as all below.
    earlier_pin: str = ""
    begun_at: float = 0.0  # when that began, seconds since the Unix epoch
    ends_at: float = 0.0  # when the earlier one goes by itself, if no node waits then
    waiting: tuple[str, ...] = ()  # nodes that were not here with a certificate by the new one
