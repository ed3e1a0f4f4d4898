"""What an endpoint's actor knows of the deliveries that it has under way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from tiercel.broker.lifecycle.endpoint import DeliveryReport
    from tiercel.broker.lifecycle.retraining import Terms
    from tiercel.core.endpoints import Delivery, Deployment
    from tiercel.core.errors import TiercelError
    from tiercel.core.jobs import Direction


@dataclass(frozen=True, slots=True)
class Work:
    """A delivery under way: the node it is asked of, or none while its job is on none, and what its job said."""

    node_id: str  # that node, or empty
    run_id: str  # the run that has the model; empty of a file that somebody deployed
    metric: str
    direction: Direction
    may_replace: bool
    asked: frozenset[str] = frozenset()  # nodes; nobody else's word on it counts
    released: bool = False  # its version may answer
    answered: DeliveryReport | None = None  # what its node said when it did, while others are waited for
    terms: Terms | None = None  # how what its job delivers is trained again, or None


def work_on(coming: Deployment) -> Work:
    """What is known of the work on a file that somebody deployed."""
    asked = frozenset({coming.node_id})
    return Work(coming.node_id, "", coming.metric, coming.direction, may_replace=coming.may_replace, asked=asked)


class Outcomes:
    """Tells those who deployed files and wait what becomes of them."""

    def __init__(self) -> None:
        self._expected: dict[str, list[asyncio.Future[Delivery]]] = {}

    def expect(self, delivery_id: str, outcome: asyncio.Future[Delivery]) -> None:
        """Somebody waits for the end of a delivery."""
        self._expected.setdefault(delivery_id, []).append(outcome)

    def tell(self, delivery: Delivery) -> None:
        """A delivery is over."""
        for outcome in self._expected.pop(delivery.id, []):
            if not outcome.done():
                outcome.set_result(delivery)

    def tell_of(self, delivery: Delivery, outcome: asyncio.Future[Delivery]) -> None:
        """Somebody waits for the end of a delivery that others have asked for, and that may be over."""
        self.expect(delivery.id, outcome)
        if delivery.state.is_final:
            self.tell(delivery)

    def refuse(self, outcome: asyncio.Future[Delivery], error: TiercelError) -> None:
        """A file is not taken."""
        if not outcome.done():
            outcome.set_exception(error)
