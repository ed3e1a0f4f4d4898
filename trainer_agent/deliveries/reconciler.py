"""Wanted and actual deliveries in, what to do out: pure, so that it can be tested in full and repeated at will.

What has ended is only reported again, never done a second time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StartDelivery:
    """Begin a delivery that nobody works on."""

    delivery_id: str


@dataclass(frozen=True, slots=True)
class ReportDelivery:
    """Say again what became of a delivery."""

    delivery_id: str


@dataclass(frozen=True, slots=True)
class AbandonDelivery:
    """Stop to wait for the model of a delivery that is no longer wanted."""

    delivery_id: str


@dataclass(frozen=True, slots=True)
class ForgetDelivery:
    """Drop the outcome of a delivery that the broker knows."""

    delivery_id: str


DeliveryAction = StartDelivery | ReportDelivery | AbandonDelivery | ForgetDelivery


def reconcile_deliveries(wanted: Iterable[str], under_way: Iterable[str], ended: Iterable[str]) -> list[DeliveryAction]:
    """What to do so that the deliveries become what is wanted.

    Args:
        wanted: Ids that the broker wants.
        under_way: Ids that are being worked on.
        ended: Ids whose outcome is in the delivery log.
    """
    wanted_ids, busy, over = dict.fromkeys(wanted), set(under_way), dict.fromkeys(ended)
    actions: list[DeliveryAction] = []
    for delivery_id in wanted_ids:
        if delivery_id in over:
            actions.append(ReportDelivery(delivery_id))
        elif delivery_id not in busy:
            actions.append(StartDelivery(delivery_id))
    actions += [AbandonDelivery(delivery_id) for delivery_id in sorted(busy - wanted_ids.keys())]
    actions += [ForgetDelivery(delivery_id) for delivery_id in over if delivery_id not in wanted_ids]
    return actions
