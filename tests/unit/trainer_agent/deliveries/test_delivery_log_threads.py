from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tiercel.trainer_agent.deliveries.delivery_log import DELIVERED, DeliveryLog, DeliveryLogEntry

THREADS = 8
ENTRIES = 20


def test_deliveries_that_end_at_the_same_time_are_all_remembered(tmp_path: Path) -> None:
    delivery_log = DeliveryLog(tmp_path / "deliveries.json")
    together = threading.Barrier(THREADS)

    def enter(thread: int) -> None:
        together.wait(timeout=60)
        for number in range(ENTRIES):
            delivery_log.enter(DeliveryLogEntry(f"job{thread}-tier-{number}", DELIVERED))
            if number % 2:
                delivery_log.forget(f"job{thread}-tier-{number}")

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(enter, range(THREADS)))
    left = {entry.delivery_id for entry in DeliveryLog(tmp_path / "deliveries.json").entries()}
    assert left == {f"job{thread}-tier-{number}" for thread in range(THREADS) for number in range(0, ENTRIES, 2)}
