from __future__ import annotations

import pytest

from tiercel.trainer_agent.deliveries.reconciler import (
    AbandonDelivery,
    DeliveryAction,
    ForgetDelivery,
    ReportDelivery,
    StartDelivery,
    reconcile_deliveries,
)


@pytest.mark.parametrize(
    ("wanted", "under_way", "ended", "actions"),
    [
        ([], [], [], []),
        (["d"], [], [], [StartDelivery("d")]),
        (["d"], ["d"], [], []),
        (["d"], [], ["d"], [ReportDelivery("d")]),
        (["d"], ["d"], ["d"], [ReportDelivery("d")]),
        ([], ["d"], [], [AbandonDelivery("d")]),
        ([], [], ["d"], [ForgetDelivery("d")]),
        (["d", "d"], [], [], [StartDelivery("d")]),
        (["e", "d"], ["e"], ["f"], [StartDelivery("d"), ForgetDelivery("f")]),
    ],
)
def test_deliveries(wanted: list[str], under_way: list[str], ended: list[str], actions: list[DeliveryAction]) -> None:
    assert reconcile_deliveries(wanted, under_way, ended) == actions
