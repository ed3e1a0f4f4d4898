"""What-ifs asked about the present: what they predict is recorded, and settled when it came."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tiercel.broker.actors.job_ids import find_job
from tiercel.broker.what_if.asking import Asking
from tiercel.broker.what_if.calibration import LATEST, calibrations
from tiercel.broker.what_if.paces import Paces
from tiercel.broker.what_if.predictions import accuracies, is_due, settled, to_record
from tiercel.broker.what_if.present import Present, Question, bounded
from tiercel.core.errors import TiercelError
from tiercel.core.jobs import TierState
from tiercel.core.predictions import PredictionRecord, PredictionState
from tiercel.core.what_if import Changes

if TYPE_CHECKING:
    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.actors.policy_choice import PolicyKeeper
    from tiercel.broker.actors.registry import ActorRegistry
    from tiercel.broker.scheduling.interface import Snapshot
    from tiercel.broker.store.predictions import PredictionStore
    from tiercel.broker.store.sql import Store
    from tiercel.broker.what_if.calibration import Calibration
    from tiercel.core.predictions import Prediction
    from tiercel.core.what_if import WhatIf

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
KEPT = 10_000
"""So many predictions are kept in all; the oldest go first."""
JUDGED = 1000
"""How far off predictions are is told of so many of the latest."""

# Of the time of one processor, the part that the broker's own questions may take.
_PART_OF_A_CORE = 0.05
_OPEN_TIERS = frozenset({TierState.PENDING, TierState.UNREACHABLE})
# Stands for the broker itself among those who ask, of whom each has one question at a time.
_NOBODY = "broker"


class Predictions:
    """Asks what-ifs for others and of its own accord, and owns what is recorded of their predictions."""

    def __init__(
        self,
        kept: PredictionStore,
        store: Store,
        registry: ActorRegistry,
        policies: PolicyKeeper,
        clock: Clock,
        interval_seconds: float,
    ) -> None:
        self._kept = kept
        self._store = store
        self._registry = registry
        self._policies = policies
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._asking = Asking()
        self._recording = asyncio.Lock()
        self._open: dict[tuple[str, int], list[Prediction]] = {}
        # Tiers that the broker asked about of its own accord, and of which nothing could be said.
        self._silent: set[tuple[str, int]] = set()
        self._may_ask_at = 0.0
        self._paces = Paces()

    async def start(self) -> None:
        """Take up what is recorded."""
        for each in await self._kept.load_open():
            self._open.setdefault((each.job_id, each.tier), []).append(each)

    def present(self) -> Present:
        """What the scheduler sees now."""
        choice = self._policies.choice
        snapshot = self._registry.scheduler.present()
        return Present(snapshot, choice.name, dict(choice.options), self._interval_seconds, paces=self._paces)

    async def ask(
        self, present: Present, changes: Changes, tenant: str = "", *, asker: str = "", is_patient: bool = False
    ) -> WhatIf:
        """Have a question answered, and what it predicts as things are recorded.

        Args:
            present: The present.
            changes: What is different.
            tenant: Whose jobs are told of; empty for all.
            asker: Who has one question at a time.
            is_patient: See :class:`.Question`.

        Raises:
            TiercelError: See :meth:`.Asking.ask`.
        """
        wanted = frozenset((*changes.cancel, *changes.priorities, *changes.add_like))
        names = {present.policy, changes.policy or present.policy}
        question = Question(bounded(present, wanted), changes, tenant, await self._calibrations(names), is_patient)
        found = await self._asking.ask(question, asker)
        await self._record(found, present.snapshot)
        return found

    async def foresee(self, present: Present, wanted: frozenset[str], *, asker: str) -> WhatIf:
        """When tiers come if nothing changes, of a present that may have jobs which are not there yet; not recorded.

        Args:
            present: The present.
            wanted: Jobs that are not left out where there are many, by id.
            asker: Who has one question at a time.

        Raises:
            TiercelError: See :meth:`.Asking.ask`.
        """
        calibrations = await self._calibrations({present.policy})
        return await self._asking.ask(Question(bounded(present, wanted), Changes(), "", calibrations), asker)

    async def record(self, tenant: str, job_id: str, limit: int) -> PredictionRecord:
        """What is recorded of a tenant's predictions, or of one of its jobs; of all where no tenant is named."""
        latest = await self._kept.latest(tenant=tenant, job_id=job_id, limit=max(JUDGED, limit))
        return PredictionRecord(accuracies(latest[:JUDGED]), tuple(latest[:limit]))

    async def run(self) -> None:
        """Settle what came, and ask where a job lacks a prediction, until cancelled."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except TiercelError as error:  # of the disk, or as too much is asked: the next look does it
                logger.debug("predictions are looked after later: %s", error.message)

    async def look(self) -> None:
        """Settle what came; then ask, where a job lacks a prediction and the last question is long enough ago."""
        await self._settle()
        present = self.present()
        self._paces = self._paces.after(present.snapshot)
        if self._clock.alive() < self._may_ask_at:
            return
        lacking = self._lacking(present.snapshot)
        if not lacking:
            return
        began = self._clock.alive()
        try:
            found = await self.ask(present, Changes(), asker=_NOBODY, is_patient=True)
        finally:
            self._may_ask_at = self._clock.alive() + (self._clock.alive() - began) / _PART_OF_A_CORE
        told = {(job.id, tier.tier) for job in found.jobs for tier in job.tiers if tier.present is not None}
        self._silent |= lacking - told

    def _lacking(self, snapshot: Snapshot) -> set[tuple[str, int]]:
        """The tiers that lack a prediction, of jobs of whose program something is known."""
        tiers = {
            (job.id, tier.number)
            for job in snapshot.jobs
            for tier in job.tiers
            if tier.state in _OPEN_TIERS and snapshot.earlier_runs(job)
        }
        self._silent &= tiers
        return {key for key in tiers - self._silent if is_due(self._open.get(key, ()), snapshot.now)}

    async def _calibrations(self, policies: set[str]) -> dict[str, Calibration]:
        found = [each for policy in sorted(policies) for each in await self._kept.settled(policy, LATEST)]
        return dict(calibrations(found))

    async def _record(self, found: WhatIf, snapshot: Snapshot) -> None:
        tenants = {job.id: job.tenant for job in snapshot.jobs}
        async with self._recording:  # of two answers at once the second finds what the first one predicted
            new = list(to_record(found, snapshot.now, tenants, self._open))
            if not new:
                return
            try:
                await self._kept.add(new, KEPT)
            except TiercelError as error:  # whoever asked has the answer all the same
                logger.warning("predictions are not recorded: %s", error.message)
                return
            for each in new:
                self._open.setdefault((each.job_id, each.tier), []).append(each)

    async def _settle(self) -> None:
        policy = self._policies.choice.name
        jobs = {
            job_id: await find_job(job_id, self._registry, self._store)
            for job_id in {job_id for job_id, _ in self._open}
        }
        done: list[Prediction] = []
        withdrawn: list[Prediction] = []
        for each in [each for rows in self._open.values() for each in rows]:
            now = settled(each, jobs[each.job_id], policy)
            if now is None:
                withdrawn.append(each)
            elif now.state is not PredictionState.OPEN:
                done.append(now)
        if not done and not withdrawn:
            return
        await self._kept.change(done, withdrawn)
        over = {(each.job_id, each.tier, each.made_at) for each in (*done, *withdrawn)}
        left = ([p for p in rows if (p.job_id, p.tier, p.made_at) not in over] for rows in self._open.values())
        self._open = {key: rows for key, rows in zip(self._open, left, strict=True) if rows}
