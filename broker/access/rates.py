"""How often each token may call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.core.errors import RateExceededError
from tiercel.core.rates import RateLimit

if TYPE_CHECKING:
    from tiercel.broker.tenancy import Caller

BURST_SECONDS = 5.0
"""What a while without calls saves up."""
MOST_TOKENS = 10_000
"""Of which it is remembered how often they called; more than that were made and revoked, and begin anew."""


class CallRates:
    """Counts calls by token, so that one program in a loop does not take all of the broker's time.

    Args:
        per_second: How many a token may make, over time.
    """

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._burst = max(1.0, per_second * BURST_SECONDS)
        self._limits: dict[tuple[str, str], RateLimit] = {}

    def check(self, caller: Caller, now: float) -> None:
        """Count a call that comes now.

        Args:
            caller: Whose it is.
            now: Seconds, monotonic.

        Raises:
            RateExceededError: It is one too many.
        """
        key = (caller.token, caller.tenant.name if caller.tenant is not None else "")
        if (limit := self._limits.get(key)) is None:
            if len(self._limits) >= MOST_TOKENS:
                self._limits.clear()
            limit = self._limits[key] = RateLimit(self._per_second, self._burst)
        if not limit.try_take(now):
            raise RateExceededError(
                f"this token may call {self._per_second:g} times a second; wait, or follow streams instead of "
                "asking again and again",
                seconds=limit.seconds_until_next(now),
            )
