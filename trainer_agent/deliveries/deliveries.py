"""Deliveries: from the wish for a model to a version that answers or is kept, once each.

The delivery log decides. Before the files are put in place an entry says what they are, and the broker, told of it,
says whether they are to answer; after that they do, or are kept, or cannot, and an entry says so. Whatever dies in
between, the next attempt goes on from the entry.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from google.protobuf.message import Message

from tiercel.core.accuracy import accuracy_of
from tiercel.core.cheap_variant_rule import judged
from tiercel.core.cheap_variants import DEFAULT_MAX_LOSS, CheapVariant, cheap_kinds
from tiercel.core.figures import number
from tiercel.core.heard_variants import heard_variants
from tiercel.core.jobs import Direction
from tiercel.core.wire import to_proto
from tiercel.trainer_agent.deliveries.copies import PlacedFiles
from tiercel.trainer_agent.deliveries.delivery_log import DELIVERED, FAILED, STAGED, DeliveryLog, DeliveryLogEntry
from tiercel.trainer_agent.disk.names import check_delivery
from tiercel.trainer_agent.errors import DeliveryFailedError, FallsShortError, TransferError
from tiercel.trainer_agent.models.repository import ModelRepository
from tiercel.trainer_agent.models.served import ServedModels
from tiercel.trainer_agent.models.variants import Place
from tiercel.trainer_agent.runs.run import Run
from tiercel.trainer_agent.runs.table import RunTable
from tiercel.trainer_agent.supervision import Signal, Supervisor
from tiercel.v1 import common_pb2, nodes_pb2, trainer_pb2

_log = logging.getLogger(__name__)

# A script hands over at its boundaries, which may be an epoch apart, and with the CPU that it gets while others run.
# Whether it hangs is told by its silence (`report_timeout_seconds`), not by this.
EXPORT_SECONDS: Final = 1800.0
_OPEN: Final = nodes_pb2.DELIVERY_VERDICT_UNSPECIFIED


class Deliveries:
    """Owns the node's deliveries.

    Args:
        delivery_log: What became of them.
        repository: Where versions go.
        runs: Where models come from.
        served: Makes them answer.
        fetch: Fetches the files of a version that somebody deployed from the broker, to where a delivery stages them.
        report: Whom to tell how a delivery is; may not block.
        tasks: Owner of the tasks that carry them out.
        export_seconds: How long a script may take to hand over its model.
        serves_accelerated: Whether the node's inference server runs models on an accelerator.

    Attributes:
        outcomes: How many ended in this life of the agent, by outcome: ``delivered`` or ``failed``.
    """

    def __init__(
        self,
        *,
        delivery_log: DeliveryLog,
        repository: ModelRepository,
        runs: RunTable,
        served: ServedModels,
        fetch: Callable[[PlacedFiles, str], Awaitable[None]],
        report: Callable[[nodes_pb2.DeliveryStatus], None],
        tasks: Supervisor,
        export_seconds: float = EXPORT_SECONDS,
        serves_accelerated: bool = False,
    ) -> None:
        self._delivery_log = delivery_log
        self._repository = repository
        self._runs = runs
        self._served = served
        self._fetch_deployed = fetch
        self._report = report
        self._tasks = tasks
        self._export_seconds = export_seconds
        self._serves_accelerated = serves_accelerated
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._wanted: Mapping[str, nodes_pb2.WantedDelivery] = {}
        self._wanted_changed = Signal()
        self._undecided: set[str] = set()
        self.outcomes: Counter[str] = Counter()
        repository.remove_staged_except({entry.delivery_id for entry in delivery_log.entries() if not entry.is_final})

    def stages(self) -> Counter[str]:
        """How many deliveries are under way, by stage: ``exporting`` or ``loading``."""
        staged = (self._delivery_log.entry(delivery_id) is not None for delivery_id in self._under_way)
        return Counter("loading" if each else "exporting" for each in staged)

    def under_way(self) -> list[str]:
        """Ids of deliveries that are being worked on."""
        return list(self._under_way)

    def ended(self) -> list[str]:
        """Ids of deliveries whose outcome is known."""
        return [entry.delivery_id for entry in self._delivery_log.entries() if entry.is_final]

    def is_delivered(self, delivery_id: str) -> bool:
        """Whether the delivery log says that a delivery has arrived."""
        entry = self._delivery_log.entry(delivery_id)
        return entry is not None and entry.stage == DELIVERED

    def statuses(self) -> list[nodes_pb2.DeliveryStatus]:
        """Everything about deliveries that a newly connected broker has to know."""
        known = {entry.delivery_id: entry.status() for entry in self._delivery_log.entries()}
        for delivery_id in self._under_way:
            known.setdefault(delivery_id, _exporting(delivery_id))
        return list(known.values())

    def want(self, wanted: Mapping[str, nodes_pb2.WantedDelivery]) -> None:
        """What is wanted now, by id: a delivery under way may wait to hear whether its model is to answer."""
        self._wanted = wanted
        self._wanted_changed.fire()
        for entry in self._delivery_log.entries():
            if not entry.is_final and entry.delivery_id not in {*wanted, *self._under_way}:  # an earlier life's
                self._drop(entry.delivery_id)

    def arriving(self) -> set[Place]:
        """Where versions are being put whose deliveries the broker does not know to have ended."""
        return {_place(wanted) for wanted in self._wanted.values() if wanted.verdict != _OPEN}

    def start(self, wanted: nodes_pb2.WantedDelivery) -> None:
        """Begin a delivery; how it goes is reported."""
        task = self._tasks.start(f"delivery {wanted.delivery_id}", self._deliver(wanted))
        self._under_way[wanted.delivery_id] = task

    def report(self, delivery_id: str) -> None:
        """Say again what became of a delivery."""
        entry = self._delivery_log.entry(delivery_id)
        if entry is not None:
            self._report(entry.status())

    def abandon(self, delivery_id: str) -> None:
        """Stop to wait for a model, or to hear of it; one that is being put in place goes on and is forgotten later."""
        if delivery_id not in self._under_way:
            return
        if self._delivery_log.entry(delivery_id) is None:
            self._under_way.pop(delivery_id).cancel()
        elif delivery_id in self._undecided:
            self._undecided.discard(delivery_id)
            self._under_way.pop(delivery_id).cancel()
            self._drop(delivery_id)

    def forget(self, delivery_id: str) -> None:
        """Drop the outcome of a delivery that the broker knows."""
        self._delivery_log.forget(delivery_id)

    def _drop(self, delivery_id: str) -> None:
        self._delivery_log.forget(delivery_id)
        self._repository.remove_staged(delivery_id)

    async def _deliver(self, wanted: nodes_pb2.WantedDelivery) -> None:
        try:
            await self._carry_out(wanted)
        except DeliveryFailedError as error:
            await self._fail(wanted, error.message)
        except OSError as error:
            await self._fail(wanted, f"The files of the model could not be handled: {error}.")
        finally:
            if self._under_way.get(wanted.delivery_id) is asyncio.current_task():
                del self._under_way[wanted.delivery_id]

    async def _carry_out(self, wanted: nodes_pb2.WantedDelivery) -> None:
        check_delivery(wanted.delivery_id, wanted.endpoint, wanted.variant)
        entry = self._delivery_log.entry(wanted.delivery_id)
        if entry is None:
            self._report(_exporting(wanted.delivery_id))
            try:
                entry = await self._fetch(wanted)
            except BaseException:  # no entry tells anybody of what had come of it
                self._repository.remove_staged(wanted.delivery_id)
                raise
        self._report(entry.status())
        wanted = await self._wait_verdict(wanted)
        answers = wanted.verdict == nodes_pb2.DELIVERY_VERDICT_LIVE
        place = _place(wanted)
        await self._served.deliver(wanted.delivery_id, place, wanted.version, entry.sha256, answers=answers)
        await self._enter_outcome(entry.delivered(time.time_ns()))
        what = "answers" if answers else "is kept"
        _log.info("delivery %s %s as %s version %d", wanted.delivery_id, what, place.model, wanted.version)

    async def _wait_verdict(self, wanted: nodes_pb2.WantedDelivery) -> nodes_pb2.WantedDelivery:
        """What is wanted once the broker, which knows what the model is by now, has said whether it is to answer."""
        self._undecided.add(wanted.delivery_id)
        try:
            while (newest := self._wanted.get(wanted.delivery_id, wanted)).verdict == _OPEN:
                await self._wanted_changed.wait()
        finally:
            self._undecided.discard(wanted.delivery_id)
        return newest

    async def _fetch(self, wanted: nodes_pb2.WantedDelivery) -> DeliveryLogEntry:
        """Get the files of the model into the agent's hands."""
        if wanted.deployed_sha256:
            return await self._stage_deployed(wanted)
        run, done = await self._export(wanted)
        accuracy = _accuracy(wanted, done.value)
        if wanted.variant and accuracy is None:
            raise DeliveryFailedError(
                f"The model has {wanted.metric} {number(done.value)}, which is no accuracy above 0 and up to 1; "
                "variants are chosen by theirs."
            )
        await asyncio.to_thread(self._repository.stage, run.folder.path, wanted.delivery_id, done.sha256, accuracy)
        variants = await self._stage_variants(run, wanted, done)
        entry = await self._enter_staged(wanted.delivery_id, done.value, done.sha256, variants)
        with contextlib.suppress(OSError):  # of no use any more; the next attempt of the job does not mind them
            await asyncio.to_thread(run.folder.remove_export, wanted.delivery_id)
        return entry

    async def _stage_variants(
        self, run: Run, wanted: nodes_pb2.WantedDelivery, done: trainer_pb2.ExportDone
    ) -> tuple[CheapVariant, ...]:
        """Cheap variants as well, those that are worth it; the delivery goes on in any case."""
        spec, accuracy, variants = run.order.spec, _accuracy(wanted, done.value), []
        accelerated = self._serves_accelerated and not run.share.accelerators
        for said in heard_variants(done.cheap_variants):
            if said.kind not in cheap_kinds(spec.variants):
                continue
            found = judged(said, accuracy, spec.variants_max_loss, perhaps_accelerated=accelerated)
            if found.shipped:
                parts = (run.folder.path, wanted.delivery_id, found)
                found = await asyncio.to_thread(self._repository.stage_variant, *parts)
            _log.info("delivery %s: its %s", wanted.delivery_id, found.outcome)
            variants.append(found)
        if accuracy is not None and variants:
            await asyncio.to_thread(self._repository.note_accuracy, wanted.delivery_id, accuracy, variants)
        return tuple(variants)

    async def _stage_deployed(self, wanted: nodes_pb2.WantedDelivery) -> DeliveryLogEntry:
        """The same of a file that somebody deployed, which the broker has."""
        files = PlacedFiles(_place(wanted), wanted.version, wanted.deployed_sha256, wanted.delivery_id)
        try:
            await self._fetch_deployed(files, wanted.delivery_id)
        except TransferError as error:
            raise DeliveryFailedError(f"It did not come from the broker: {error.message}.") from error
        accuracy = _accuracy(wanted, wanted.target) if wanted.metric else None
        said = heard_variants(wanted.cheap_variants)
        accelerated = self._serves_accelerated
        variants = tuple(judged(each, accuracy, DEFAULT_MAX_LOSS, perhaps_accelerated=accelerated) for each in said)
        variants = await asyncio.to_thread(self._repository.settle_deployed, wanted.delivery_id, accuracy, variants)
        for each in variants:
            _log.info("delivery %s: its %s", wanted.delivery_id, each.outcome)
        parts = (wanted.delivery_id, wanted.target, wanted.deployed_sha256, variants)
        return await self._enter_staged(*parts)

    async def _enter_staged(
        self, delivery_id: str, value: float, sha256: str, variants: Iterable[CheapVariant]
    ) -> DeliveryLogEntry:
        """Remember what the staged files are."""
        signature = await asyncio.to_thread(self._repository.signature_of_staged, delivery_id)
        size_bytes = await asyncio.to_thread(self._repository.size_of_staged, delivery_id)
        text = _as_text(signature)
        made = tuple(_as_text(to_proto(each, common_pb2.CheapVariant)) for each in variants)
        entry = DeliveryLogEntry(
            delivery_id, STAGED, value, sha256, signature=text, size_bytes=size_bytes, cheap_variants=made
        )
        await asyncio.to_thread(self._delivery_log.enter, entry)
        return entry

    async def _export(self, wanted: nodes_pb2.WantedDelivery) -> tuple[Run, trainer_pb2.ExportDone]:
        """Have the model handed over, by the run that has it or, when that is lost or moved meanwhile, by the next."""
        number = 0
        while True:
            run = await self._wait_run(wanted)
            best, number = self._best(run, wanted), number + 1
            try:
                request = _export_request(wanted, number)
                names = (f"VARIANT_KIND_{kind.name}" for kind in cheap_kinds(run.order.spec.variants))
                request.cheap_variants.extend(map(common_pb2.VariantKind.Value, names))
                return run, await run.gateway.export(request, self._export_seconds)
            except FallsShortError as error:
                _log.info("delivery %s waits for a better report: %s", wanted.delivery_id, error.message)
                if await self._wait_better(run, wanted, best):
                    continue  # it is asked again
                if not run.has_successor:
                    raise DeliveryFailedError(f"{error.message}; no later report was better") from error
            except DeliveryFailedError:
                if not run.has_successor:
                    raise
            while self._runs.live(run.run_id) is run:
                await self._runs.changed.wait()

    async def _wait_run(self, wanted: nodes_pb2.WantedDelivery) -> Run:
        """The run that has the model, or the successor of one that was lost, once it has got as far."""
        while True:
            job_id = _job_of(wanted.run_id)
            run = self._runs.live(wanted.run_id) or self._runs.live_run_of_job(job_id)
            if run is not None and self._has_reached(run, wanted):
                return run
            if run is None and not self._runs.awaits_successor(job_id):
                raise DeliveryFailedError("The run ended before it handed over the model.")
            await self._runs.changed.wait()

    async def _wait_better(self, run: Run, wanted: nodes_pb2.WantedDelivery, best: float) -> bool:
        """Wait until the run has reported better than ``best``, for as long as it lives; False if it never does."""
        while self._runs.live(run.run_id) is run:
            if self._best(run, wanted) > best:
                return True
            await self._runs.changed.wait()
        return False

    def _has_reached(self, run: Run, wanted: nodes_pb2.WantedDelivery) -> bool:
        return self._best(run, wanted) >= _sign(wanted) * wanted.target

    def _best(self, run: Run, wanted: nodes_pb2.WantedDelivery) -> float:
        """The best that a run has reported, negated where less is better; -inf before it has reported a number."""
        metrics = (progress.metrics for progress in self._runs.reports(run.run_id) or ())
        values = (_sign(wanted) * reported[wanted.metric] for reported in metrics if wanted.metric in reported)
        return max((value for value in values if not math.isnan(value)), default=-math.inf)

    async def _fail(self, wanted: nodes_pb2.WantedDelivery, reason: str) -> None:
        _log.warning("delivery %s failed: %s", wanted.delivery_id, reason)
        entry = self._delivery_log.entry(wanted.delivery_id)
        if entry is not None:  # the names were found good, so that they may be used in a path
            newest = self._wanted.get(wanted.delivery_id, wanted)
            await self._served.withdraw(wanted.delivery_id, _place(wanted), newest.version)
        await self._enter_outcome(DeliveryLogEntry(wanted.delivery_id, FAILED, reason=reason))

    async def _enter_outcome(self, entry: DeliveryLogEntry) -> None:
        """Remember how a delivery ended, and say so."""
        self.outcomes[entry.stage] += 1
        try:
            await asyncio.to_thread(self._delivery_log.enter, entry)
        except OSError as error:  # at worst the agent's next life does the work again, under the same id
            _log.error("delivery %s is %s, which cannot be written down: %s", entry.delivery_id, entry.stage, error)
        self._report(entry.status())


def _exporting(delivery_id: str) -> nodes_pb2.DeliveryStatus:
    return nodes_pb2.DeliveryStatus(delivery_id=delivery_id, stage=nodes_pb2.DELIVERY_STAGE_EXPORTING)


def _as_text(message: Message) -> str:
    return base64.b64encode(message.SerializeToString()).decode("ascii")


def _place(wanted: nodes_pb2.WantedDelivery) -> Place:
    return Place(wanted.endpoint, wanted.variant)


def _sign(wanted: nodes_pb2.WantedDelivery) -> float:
    """What to multiply the metric with, so that more is better."""
    return -1.0 if wanted.direction == common_pb2.DIRECTION_MIN else 1.0


def _accuracy(wanted: nodes_pb2.WantedDelivery, value: float) -> float | None:
    return accuracy_of(value, Direction.MIN if wanted.direction == common_pb2.DIRECTION_MIN else Direction.MAX)


def _export_request(wanted: nodes_pb2.WantedDelivery, number: int) -> trainer_pb2.ExportRequest:
    return trainer_pb2.ExportRequest(
        delivery_id=wanted.delivery_id, tier=wanted.tier, target=wanted.target, request_number=number
    )


def _job_of(run_id: str) -> str:
    """The job of a run ``JOB-ATTEMPT``."""
    return run_id.rpartition("-")[0]
