"""One endpoint: its requests wait here until a worker is free; only then is it decided which variant answers them."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Any

import onnxruntime as ort

from tiercel.serving.accounting.accounts import Account
from tiercel.serving.dispatch.call import Call
from tiercel.serving.dispatch.checks import checked_feeds, checked_outputs
from tiercel.serving.dispatch.rows import Ran, ran_or_failed, run_calls_measured
from tiercel.serving.dispatch.variants.configuration import Configuration
from tiercel.serving.dispatch.variants.live import Candidate, LiveVariants
from tiercel.serving.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    NotReadyError,
    OverloadedError,
    ServingError,
)
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.models.registry import Registry
from tiercel.serving.runtime.engine import Session
from tiercel.serving.runtime.workers import Workers
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
from tiercel.serving.tensors import Array

if TYPE_CHECKING:
    from tiercel.serving.requests import InferRequest

_logger = logging.getLogger(__name__)

Answer = tuple[Candidate, list[Array]]
"""Who answered, and the outputs in the order wanted."""

OnAnswer = Callable[["VariantCall", Answer | ServingError], None]


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


class Endpoint:
    """See the module. Everything but the runs themselves happens on the event loop.

    Args:
        name: Of the endpoint.
        configuration: Its variants and how they are chosen. An objective that was declared for the endpoint's account
            takes the place of the one in it.
        registry: What is live.
        workers: Where batches run; shared with others.
        solver: Where a scheduler may work out what takes long.
        max_pending: Requests that may wait.
        timeout: Seconds in which a request is answered at the latest.
    """

    def __init__(
        self,
        name: str,
        configuration: Configuration,
        registry: Registry,
        workers: Workers,
        solver: Executor,
        max_pending: int,
        timeout: float,
    ) -> None:
        self.name = name
        self.configuration = configuration
        self.account: Account = registry.record(name).account
        self.decisions = 0
        self._workers = workers
        self._solver = solver
        self._max_pending = max_pending
        self._timeout = timeout
        self._user = workers.join(self._dispatch)
        self._scheduler = configuration.make_scheduler(solver)
        self._variants = LiveVariants(name, configuration.variants, registry)
        self._waiting: Waiting[VariantCall] = Waiting(configuration.objective)
        self._aim(self.objective_wanted)
        self._runs: dict[int, float] = {}
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._closed = False

    @property
    def objective_wanted(self) -> float:
        """Seconds of delay aimed at from the next request on."""
        return self.account.share.objective_seconds or self.configuration.objective

    def configure(self, configuration: Configuration) -> None:
        """Go on with another configuration; requests that wait go on waiting, and runs under way end."""
        if not configuration.decides_like(self.configuration):
            self._scheduler = configuration.make_scheduler(self._solver)
        self.configuration = configuration
        self._variants.configure(configuration.variants)
        self._aim(self.objective_wanted)
        self._dispatch()

    def check_fits(self, model: str, session: Session) -> None:
        """See :meth:`LiveVariants.check_fits`."""
        self._variants.check_fits(model, session)

    def submit(self, request: InferRequest, on_answer: OnAnswer, now: float) -> VariantCall:
        """Let a request wait for its turn.

        Args:
            request: What is wanted.
            on_answer: Called once, on the event loop, later.
            now: Seconds of ``time.perf_counter``.

        Raises:
            InvalidRequestError: It does not fit the variants, or none is accurate enough.
            NotReadyError: No variant is live.
            OverloadedError: Too many requests wait.
        """
        if self.objective_wanted != self.objective:
            self._aim(self.objective_wanted)
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
        self._workers.leave(self._user)
        for call in self._waiting.clear():
            self._end(call, NotReadyError(f"endpoint '{self.name}' was unloaded or changed; ask again"))

    def cancelled(self, call: VariantCall) -> None:
        """A caller went away; what runs already is not broken off, since others may be in the same batch."""
        now = time.perf_counter()
        call.loaded.statistics.canceled(now, now - call.begin)
        self.account.delays.failed(now)
        self._waiting.discard(call)

    def described(self) -> list[dict[str, Any]]:
        """The live variants, the most accurate first, for metadata."""
        return [
            {"name": each.name, "version": each.loaded.version_text, "accuracy": each.accuracy}
            for each in self._variants.current()
        ]

    def answering(self) -> list[LoadedVersion]:
        """The live versions of the variants, the most accurate first; all have the same inputs and outputs.

        Raises:
            NotReadyError: None is live.
        """
        return [each.loaded for each in self._candidates()]

    def _candidates(self) -> Sequence[Candidate]:
        """The live variants, at least one."""
        candidates = self._variants.current()
        if not candidates:
            models = ", ".join(variant.model for variant in self.configuration.variants)
            raise NotReadyError(f"no variant of endpoint '{self.name}' is loaded; load one of {models}")
        return candidates

    def _aim(self, objective: float) -> None:
        """This is the objective from now on; requests that wait keep their order."""
        self.objective = objective
        self._waiting = self._waiting.aimed_at(objective)
        self._rate = ArrivalRate(RATE_OBJECTIVES * objective)
        self._recent = ArrivalRate(RECENT_OBJECTIVES * objective)

    def _checked(self, request: InferRequest, now: float) -> VariantCall:
        first = self._candidates()[0]
        loaded, best = first.loaded, first.accuracy
        minimum = request.minimum_accuracy or 0.0
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
        objective = self.objective
        call.since = arrived - max(0.0, objective - allowed)
        call.useless_at = arrived + min(allowed, self.configuration.utility.useless_after(best, objective))
        call.minimum = minimum
        call.endpoint = self
        return call

    def _key(self, feeds: dict[str, Array], outputs: tuple[str, ...]) -> tuple[Any, int]:
        if any(each.loaded.session.batching.profile is None for each in self._variants.current()):
            return None, 1
        shapes = [feed.shape for feed in feeds.values()]
        if len({shape[0] for shape in shapes}) != 1:
            return None, 1
        return (outputs, tuple(sorted((name, feed.shape[1:]) for name, feed in feeds.items()))), shapes[0][0] or 1

    def _dispatch(self) -> None:
        """Start runs while a worker is idle, something waits, and the scheduler does not choose to wait."""
        waiting, workers = self._waiting, self._workers
        self._user.waiting = False
        while waiting:
            now = time.perf_counter()
            candidates = self._variants.current()
            if not self._give_up(now, candidates):
                break
            if not workers.idle:
                self._user.waiting = True
                break
            if not self.account.may_run(now):
                # Earlier for the sake of those whose time is up by then.
                self._wake_at(now + min(self.account.seconds_until_it_may(), self.objective))
                return
            if not self._start(now, candidates):
                self._wake_at(now + PATIENCE * self.objective)
                return
        if waiting:
            # Workers may be busy for long; whose time is up is told nevertheless.
            self._wake_at(time.perf_counter() + self.objective)

    def _give_up(self, now: float, candidates: Sequence[Candidate]) -> bool:
        """Tell those whom no answer helps any more; returns whether others wait and somebody can answer them."""
        if not candidates:
            for call in self._waiting.clear():
                self._end(call, NotReadyError(f"no variant of endpoint '{self.name}' is loaded any more"))
            return False
        self._variants.renew(now)
        quickest = min(profile.seconds[0] for profile in self._variants.prefixes[-1])
        for call in self._waiting.sweep(now, quickest):
            self._end(call, DeadlineExceededError(
                f"endpoint '{self.name}' is busy: the answer would be of no use {now + quickest - call.begin:.3g} s "
                "after the request; ask less often, or allow more time"
            ))  # fmt: skip
        return bool(self._waiting)

    def _start(self, now: float, candidates: Sequence[Candidate]) -> bool:
        """Start one run; returns False when the scheduler waits."""
        first = self._waiting.first()
        assert first is not None  # noqa: S101 - for the type checker; the caller looked
        suited = sum(1 for each in candidates if each.accuracy >= first.minimum)
        profiles = self._variants.prefixes[max(1, suited)]
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
            objective=self.objective,
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
        self, number: int, chosen: Candidate, calls: list[VariantCall], rows: int, began: float, ran: Ran | Exception
    ) -> None:
        now = time.perf_counter()
        del self._runs[number]
        loaded = chosen.loaded
        loaded.release()
        chosen.profile.ran(rows, now - began)
        ran = ran_or_failed(ran, calls, rows)
        self.account.charge(ran.cpu, rows)
        self.account.accelerator_seconds += ran.accelerator
        self._scheduler.ended(Ended(chosen.name, rows, now - min([call.since for call in calls])))
        self._user.waiting = bool(self._waiting)
        outcomes = list(zip(calls, ran.outcomes, strict=True))
        answered = [call for call, outcome in outcomes if not call.ended and isinstance(outcome, list)]
        delays = sum([now - call.begin for call in answered])
        ran.count(loaded.statistics, len(answered), sum([call.rows for call in answered]), delays, now)
        for call, outcome in outcomes:
            if call.ended:
                continue
            if isinstance(outcome, list):
                self.account.answered_by[chosen.name] += 1
                self._end(call, (chosen, outcome))
            else:
                self._end(call, outcome)

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
