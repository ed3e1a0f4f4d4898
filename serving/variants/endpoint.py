"""One endpoint: its requests wait here until a worker is free; only then is it decided which variant answers them."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnxruntime as ort

from tiercel.serving.accounting.accounts import Account
from tiercel.serving.batching.call import Call
from tiercel.serving.batching.rows import Ran, run_calls_measured
from tiercel.serving.checks import checked_feeds, checked_outputs
from tiercel.serving.errors import (
    DeadlineExceededError,
    InferenceFailedError,
    InvalidRequestError,
    NotReadyError,
    OverloadedError,
    ServingError,
)
from tiercel.serving.models.registry import LoadedVersion, Registry
from tiercel.serving.scheduling.interface import (
    PATIENCE,
    RATE_OBJECTIVES,
    RECENT_OBJECTIVES,
    ArrivalRate,
    Ended,
    Profile,
    View,
)
from tiercel.serving.scheduling.waiting import Waiting
from tiercel.serving.tensors import Array, TensorSpec
from tiercel.serving.variants.configuration import Configuration, accuracy_of
from tiercel.serving.variants.live_profile import LiveProfile
from tiercel.serving.workers import Workers

if TYPE_CHECKING:
    from tiercel.serving.dataplane import InferRequest

_logger = logging.getLogger(__name__)

Answer = tuple[LoadedVersion, float, list[Array]]
"""Who answered, its accuracy, and the outputs in the order wanted."""

OnAnswer = Callable[["VariantCall", Answer | ServingError], None]

# How often schedulers see what runs took meanwhile: what they work out from profiles costs more than a decision.
_RENEW_SECONDS = 0.5


class VariantCall(Call):
    """A request of an endpoint: a call whose version is known when it runs.

    Attributes:
        since: When it came, earlier by as much as it is due earlier than the objective says.
        useless_at: When an answer would be of no use any more.
        minimum: The least accuracy that will do.
        on_answer: Called once with the answer or the error.
    """

    __slots__ = ("endpoint", "minimum", "on_answer", "since", "useless_at")

    since: float
    useless_at: float
    minimum: float
    on_answer: OnAnswer
    endpoint: Endpoint

    def cancel(self) -> None:
        """See :meth:`Call.cancel`."""
        if not self.ended:
            self.ended = True
            self.endpoint.cancelled(self)


class _Candidate:
    """A variant that is live."""

    __slots__ = ("accuracy", "loaded", "profile")

    def __init__(self, loaded: LoadedVersion, accuracy: float) -> None:
        self.loaded = loaded
        self.accuracy = accuracy
        self.profile = LiveProfile(loaded.model, accuracy, loaded.session)


class Endpoint:
    """See the module. Everything but the runs themselves happens on the event loop.

    Args:
        name: Of the endpoint.
        configuration: Its variants and how they are chosen.
        registry: What is live.
        workers: Where batches run; shared with others.
        root: The repository's folder, for the accuracy of versions.
        max_pending: Requests that may wait.
        timeout: Seconds in which a request is answered at the latest.
    """

    def __init__(
        self,
        name: str,
        configuration: Configuration,
        registry: Registry,
        workers: Workers,
        root: Path,
        max_pending: int,
        timeout: float,
    ) -> None:
        self.name = name
        self.configuration = configuration
        self.account: Account = registry.record(name).account
        self.decisions = 0
        self._registry = registry
        self._workers = workers
        self._root = root
        self._max_pending = max_pending
        self._timeout = timeout
        self._user = workers.join(self._dispatch)
        self._scheduler = configuration.make_scheduler()
        self._waiting: Waiting[VariantCall] = Waiting(configuration.objective)
        self._rate = ArrivalRate(RATE_OBJECTIVES * configuration.objective)
        self._recent = ArrivalRate(RECENT_OBJECTIVES * configuration.objective)
        self._live: tuple[LoadedVersion | None, ...] = ()
        self._candidates: list[_Candidate] = []
        self._prefixes: list[tuple[Profile, ...]] = []
        self._renewed = 0.0
        self._runs: dict[int, float] = {}
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._closed = False

    def submit(self, request: InferRequest, on_answer: OnAnswer, now: float) -> VariantCall:
        """Let a request wait for its turn.

        Args:
            request: The question.
            on_answer: Called once, on the event loop, later.
            now: Seconds of ``time.perf_counter``.

        Raises:
            InvalidRequestError: It does not fit the variants, or none is accurate enough.
            NotReadyError: No variant is live.
            OverloadedError: Too many requests wait.
        """
        call = self._checked(request, now)
        if len(self._waiting) >= self._max_pending or self._closed:
            raise OverloadedError(f"{len(self._waiting)} requests are waiting already; try again in a moment")
        call.on_answer = on_answer
        self._rate.add(now, call.rows)
        self._recent.add(now, call.rows)
        self._waiting.add(call)
        self._dispatch()
        return call

    def close(self) -> None:
        """Fail what waits; no more requests are taken."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._user.waiting = False
        for call in self._waiting.clear():
            self._end(call, NotReadyError(f"endpoint '{self.name}' was unloaded or changed; ask again"))

    def cancelled(self, call: VariantCall) -> None:
        """A caller went away; what runs already is not broken off, since others may be in the same batch."""
        self._waiting.discard(call)

    def described(self) -> list[dict[str, Any]]:
        """The live variants, the most accurate first, for metadata."""
        return [
            {"name": each.loaded.model, "version": each.loaded.version_text, "accuracy": each.accuracy}
            for each in self._current()
        ]

    def specifications(self) -> LoadedVersion:
        """A live variant, whose inputs and outputs are those of all.

        Raises:
            NotReadyError: None is live.
        """
        candidates = self._current()
        if not candidates:
            raise NotReadyError(
                f"no variant of endpoint '{self.name}' is loaded; load one of {', '.join(self.configuration.variants)}"
            )
        return candidates[0].loaded

    def _checked(self, request: InferRequest, now: float) -> VariantCall:
        if request.version:
            raise InvalidRequestError(
                f"'{request.model}' is an endpoint with variants and has no versions; ask a variant by its name instead"
            )
        loaded = self.specifications()
        minimum = request.minimum_accuracy or 0.0
        best = self._candidates[0].accuracy
        if minimum > best:
            raise InvalidRequestError(
                f"minimum_accuracy is {minimum:g}, but the most accurate variant of '{self.name}' has {best:g}"
            )
        session = loaded.session
        feeds = checked_feeds(request, session)
        outputs = checked_outputs(request.outputs, session)
        key, rows = self._key(feeds, outputs)
        size = sum([feed.nbytes for feed in feeds.values()])
        arrived = request.arrived or now
        allowed = self._timeout if request.timeout is None else min(self._timeout, request.timeout)
        call = VariantCall(
            loaded, session, feeds, outputs, key, 1, rows, 0, size, now, arrived + allowed, request.priority
        )  # fmt: skip
        objective = self.configuration.objective
        call.since = arrived - max(0.0, objective - allowed)
        call.useless_at = arrived + min(allowed, self.configuration.utility.useless_after(best, objective))
        call.minimum = minimum
        call.endpoint = self
        return call

    def _key(self, feeds: dict[str, Array], outputs: tuple[str, ...]) -> tuple[Any, int]:
        if any(each.loaded.session.batching.profile is None for each in self._candidates):
            return None, 1
        shapes = [feed.shape for feed in feeds.values()]
        if len({shape[0] for shape in shapes}) != 1:
            return None, 1
        return (outputs, tuple(sorted((name, feed.shape[1:]) for name, feed in feeds.items()))), shapes[0][0] or 1

    def _current(self) -> list[_Candidate]:
        """The variants that are live now, the most accurate first; a version that was swapped is another candidate."""
        names = self.configuration.variants
        records = [self._registry.known(name) for name in names]
        live = tuple(record.live if record is not None else None for record in records)
        if live != self._live:
            known = {each.loaded: each for each in self._candidates}
            found = [known.get(each) or self._candidate(each) for each in live if each is not None]
            agreed = [each for each in found if each is not None and _agree(each.loaded, found[0])]
            self._candidates = sorted(agreed, key=lambda each: -each.accuracy)
            self._live = live
            self._renew(time.perf_counter())
        return self._candidates

    def _candidate(self, loaded: LoadedVersion) -> _Candidate | None:
        accuracy = accuracy_of(self._root / loaded.model / loaded.version_text)
        if accuracy is None:
            accuracy = self.configuration.variants[loaded.model]
        if accuracy is None:
            _logger.warning(
                "Variant '%s' of endpoint '%s' is left out: its version %s has no accuracy.json, and variants.json "
                "gives no accuracy", loaded.model, self.name, loaded.version_text,
            )  # fmt: skip
            return None
        return _Candidate(loaded, accuracy)

    def _renew(self, now: float) -> None:
        profiles = tuple(each.profile.renew() for each in self._candidates)
        self._prefixes = [profiles[:length] for length in range(len(profiles) + 1)]
        self._renewed = now

    def _dispatch(self) -> None:
        """Start runs while a worker is idle, something waits, and the scheduler does not choose to wait."""
        waiting, workers = self._waiting, self._workers
        self._user.waiting = False
        while waiting:
            now = time.perf_counter()
            candidates = self._current()
            if not self._give_up(now, candidates):
                break
            if not workers.idle:
                self._user.waiting = True
                break
            if not self.account.may_run(now):
                self._wake_at(now + self.account.seconds_until_it_may())
                return
            if not self._start(now, candidates):
                self._wake_at(now + PATIENCE * self.configuration.objective)
                return
        if waiting:
            # Workers may be busy for long; whose time is up is told nevertheless.
            self._wake_at(time.perf_counter() + self.configuration.objective)

    def _give_up(self, now: float, candidates: Sequence[_Candidate]) -> bool:
        """Tell those whom no answer helps any more; returns whether others wait and somebody can answer them."""
        if not candidates:
            for call in self._waiting.clear():
                self._end(call, NotReadyError(f"no variant of endpoint '{self.name}' is loaded any more"))
            return False
        if now - self._renewed > _RENEW_SECONDS:
            self._renew(now)
        quickest = min(profile.seconds[0] for profile in self._prefixes[-1])
        for call in self._waiting.sweep(now, quickest):
            self._end(call, DeadlineExceededError(
                f"endpoint '{self.name}' is busy: the answer would be of no use {now + quickest - call.begin:.3g} s "
                "after the question; ask less often, or allow more time"
            ))  # fmt: skip
        return bool(self._waiting)

    def _start(self, now: float, candidates: Sequence[_Candidate]) -> bool:
        """Start one run; returns False when the scheduler waits."""
        first = self._waiting.first()
        assert first is not None  # noqa: S101 - for the type checker; the caller looked
        suited = sum(1 for each in candidates if each.accuracy >= first.minimum)
        profiles = self._prefixes[max(1, suited)]
        self.decisions += 1
        decision = self._scheduler.decide(self._view(now, profiles))
        if decision is None:
            return False
        chosen = candidates[decision.variant]
        calls = self._waiting.take(
            now,
            decision.batch,
            profiles[decision.variant].seconds_for,
            lambda call: call.minimum <= chosen.accuracy,
            _together,
        )
        rows = sum([call.rows for call in calls])
        number = next(self._numbers)
        loaded = chosen.loaded
        for call in calls:
            call.loaded, call.session = loaded, loaded.session
        self._runs[number] = now + chosen.profile.current.seconds_for(rows)
        loaded.acquire()
        options = ort.RunOptions()
        options.log_severity_level = 4
        work = partial(run_calls_measured, loaded.session, calls, options)
        self._workers.run(work, partial(self._ran, number, chosen, calls, rows, now))
        return True

    def _view(self, now: float, profiles: tuple[Profile, ...]) -> View:
        rows, oldest, p90, median = self._waiting.ages(now)
        idle = self._workers.idle
        busy = [max(1e-6, end - now) for end in self._runs.values()]
        others = self._workers.count - idle - len(busy)
        busy += [profiles[-1].seconds[0]] * others
        return View(
            profiles=profiles,
            objective=self.configuration.objective,
            utility=self.configuration.utility,
            count=rows,
            oldest=oldest,
            p90=p90,
            median=median,
            busy=(0.0,) * idle + tuple(busy),
            rate=self._rate.at(now),
            recent_rate=self._recent.at(now),
        )

    def _ran(
        self, number: int, chosen: _Candidate, calls: list[VariantCall], rows: int, began: float, ran: Ran | Exception
    ) -> None:
        now = time.perf_counter()
        del self._runs[number]
        loaded = chosen.loaded
        loaded.release()
        chosen.profile.ran(rows, now - began)
        if isinstance(ran, Exception):
            _logger.error("Running a batch failed", exc_info=ran)
            failed = InferenceFailedError("the server failed to run the model; its log says more")
            ran = Ran([failed] * len(calls), rows, False, 0.0, 0.0, 0.0)
        self.account.charge(ran.cpu, rows)
        self._scheduler.ended(Ended(loaded.model, rows, now - min([call.since for call in calls])))
        self._user.waiting = bool(self._waiting)
        answered = [call for call in calls if not call.ended]
        self._count(loaded, answered, ran, now)
        for call, outcome in zip(calls, ran.outcomes, strict=True):
            if not call.ended:
                self._end(call, (loaded, chosen.accuracy, outcome) if isinstance(outcome, list) else outcome)

    @staticmethod
    def _count(loaded: LoadedVersion, answered: Sequence[VariantCall], ran: Ran, now: float) -> None:
        if not answered:
            return
        rows = sum([call.rows for call in answered])
        delays = sum([now - call.begin for call in answered])
        parts = (ran.compute_infer, ran.compute_input, ran.compute_output)
        loaded.statistics.executed(ran.rows, *parts)
        infer, joined, taken = parts
        loaded.statistics.succeeded(now, delays, infer, rows, joined, taken, len(answered))

    def _end(self, call: VariantCall, answer: Answer | ServingError) -> None:
        if call.ended:
            return
        call.ended = True
        try:
            call.on_answer(call, answer)
        except Exception:  # the border: one caller's defect must not take the answers from the others
            _logger.exception("An answer could not be handed over")

    def _wake_at(self, at: float) -> None:
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer_at = at
        self._timer = loop.call_later(max(0.0, at - time.perf_counter()), self._woken)

    def _woken(self) -> None:
        self._timer = None
        self._dispatch()


def _together(one: VariantCall, other: VariantCall) -> bool:
    return one.key is not None and one.key == other.key


def _agree(loaded: LoadedVersion, first: _Candidate | None) -> bool:
    """Whether a variant takes and gives what the first one does; if not, that is said in the log."""
    if first is None:
        return True
    one, other = loaded.session, first.loaded.session
    for what, mine, its in (("inputs", one.inputs, other.inputs), ("outputs", one.outputs, other.outputs)):
        if _shape_of(mine) != _shape_of(its):
            _logger.warning(
                "Variant '%s' is left out: its %s differ from those of '%s'", loaded.model, what, first.loaded.model
            )
            return False
    return True


def _shape_of(specs: Any) -> list[tuple[str, str, tuple[int, ...]]]:
    values: list[TensorSpec] = list(specs.values())
    return sorted((spec.name, spec.data_type.name, tuple(spec.shape)) for spec in values)
