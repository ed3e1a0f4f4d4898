"""Drops what nobody looks at any more, now and then."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tiercel.core.errors import UnavailableError
from tiercel.core.run_records import RUNS_KEPT_PER_WORKLOAD, WORKLOADS_KEPT

if TYPE_CHECKING:
    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.store.contract import Store

logger = logging.getLogger(__name__)

PRUNE_SECONDS = 600.0
# Of each job; older ones are dropped.
KEPT_PROGRESS_EVENTS = 2_000
KEPT_DECISIONS = 500


async def keep_pruned(store: Store, clock: Clock) -> None:
    """Bound the history in the store, until cancelled."""
    while True:
        try:
            await store.prune_events(KEPT_PROGRESS_EVENTS)
            await store.prune_decisions(KEPT_DECISIONS)
            await store.prune_run_records(RUNS_KEPT_PER_WORKLOAD, WORKLOADS_KEPT)
        except UnavailableError as error:  # whoever has something to store will say so as well
            logger.warning("old events cannot be dropped: %s", error.message)
        await clock.sleep(PRUNE_SECONDS)
