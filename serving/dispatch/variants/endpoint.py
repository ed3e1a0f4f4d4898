"""One endpoint: its requests wait here until a worker is free; only then is it decided which variant answers them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any

from tiercel.core.errors import DeadlineExceededError, InvalidRequestError, UnavailableError
from tiercel.core.figures import compared
from tiercel.serving.accounting.accounts import Account
from tiercel.serving.accounting.room import Room
from tiercel.serving.accounting.waiting import Source
from tiercel.serving.dispatch.call import Run
from tiercel.serving.dispatch.checks import checked_feeds, checked_outputs
from tiercel.serving.dispatch.dispatcher import Dispatcher
from tiercel.serving.dispatch.variants.call import VariantCall
from tiercel.serving.dispatch.variants.configuration import Configuration
from tiercel.serving.dispatch.variants.live import Candidate, LiveVariants
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.models.registry import Registry
from tiercel.serving.requests import Answered, InferRequest
from tiercel.serving.runtime.engine import Session
from tiercel.serving.scheduling.interface import (
    PATIENCE,
    RATE_OBJECTIVES,
    RECENT_OBJECTIVES,
    ArrivalRate,
    Ended,
    Profile,
    View,
    WorkerKind,
)
from tiercel.serving.scheduling.waiting import Waiting
from tiercel.serving.tensors import Array

# Like calls of this priority, those of endpoints do not stand behind all that wait: they are answered as they are due.
_AS_DUE = 1


class Endpoint(Source):
    """See the module: the source of its account's calls, which asks a scheduler which variant runs how many of them.

    It has room of its own, since it keeps calls that are late for as long as they may be worth something.

    Args:
        configuration: Its variants and how they are chosen. An objective that was declared for the endpoint's account
            takes the place of the one in it.
        timeout: Seconds in which a request is answered at the latest.
    """

    def __init__(
        self,
        name: str,
        configuration: Configuration,
        registry: Registry,
        dispatcher: Dispatcher,
        solver: Executor,
        timeout: float,
    ) -> None:
        self.name = name
        self.configuration = configuration
        self.account: Account = registry.record(name).account
        self.room: Room = dispatcher.new_room()
        self._dispatcher = dispatcher
        self._solver = solver
        self._timeout = timeout
        self._scheduler = configuration.make_scheduler(solver)
        self._variants = LiveVariants(name, configuration.variants, registry)
        self._waiting: Waiting[VariantCall] = Waiting(configuration.objective)
        self._aim(self.objective_wanted)
        self._runs: dict[Run, tuple[float, float]] = {}  # when it began, and when it should end
        self._ask_at = 0.0
        self.account.endpoint = self

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
        self._ask_at = 0.0
        self._dispatcher.look_again()

    def check_fits(self, model: str, session: Session) -> None:
        """See :meth:`LiveVariants.check_fits`."""
        self._variants.check_fits(model, session)

    def close(self) -> None:
        """Fail what waits; no more requests are taken."""
        self.account.endpoint = ()
        self._fail_all(f"endpoint '{self.name}' was unloaded or changed; ask again")

    @property
    def is_live(self) -> bool:
        """Whether a variant is live."""
        return bool(self._variants.current())

    def has_variants(self) -> bool:
        """Whether a variant is live; if not, those who wait are told."""
        if self._variants.current():
            return True
        self._fail_all(self._nobody())
        return False

    def described(self) -> list[dict[str, Any]]:
        """The live variants, the most accurate first, for metadata."""
        return [
            {"name": each.name, "version": each.loaded.version_text, "accuracy": each.accuracy}
            for each in self._variants.current()
        ]

    def answering(self) -> list[LoadedVersion]:
        """The live versions of the variants, the most accurate first; all have the same inputs and outputs.

        Raises:
            UnavailableError: None is live.
        """
        return [each.loaded for each in self._candidates()]

    def _candidates(self) -> Sequence[Candidate]:
        """The live variants, at least one."""
        candidates = self._variants.current()
        if not candidates:
            raise UnavailableError(self._nobody())
        return candidates

    def _nobody(self) -> str:
        models = ", ".join(variant.model for variant in self.configuration.variants)
        return f"no variant of endpoint '{self.name}' is loaded; load one of {models}"

    def _aim(self, objective: float) -> None:
        """This is the objective from now on; requests that wait keep their order."""
        self.objective = objective
        self._waiting = self._waiting.aimed_at(objective)
        self._rate = ArrivalRate(RATE_OBJECTIVES * objective)
        self._recent = ArrivalRate(RECENT_OBJECTIVES * objective)

    def checked(self, request: InferRequest, on_answer: Answered, now: float) -> VariantCall:
        """The call of a request.

        Args:
            request: What is wanted.
            on_answer: Called once, on the event loop, later.
            now: Seconds of ``time.perf_counter``.

        Raises:
            InvalidRequestError: It does not fit the variants, or none is accurate enough.
            UnavailableError: No variant is live.
        """
        if self.objective_wanted != self.objective:
            self._aim(self.objective_wanted)
        first = self._candidates()[0]
        loaded, best = first.loaded, first.accuracy
        minimum = request.minimum_accuracy or 0.0
        if minimum > best:
            asked, has = compared(minimum, best)
            raise InvalidRequestError(
                f"minimum_accuracy is {asked}, but the most accurate variant of '{self.name}' has {has}"
            )
        session = loaded.session
        feeds = checked_feeds(request, session)
        outputs = checked_outputs(request.outputs, session)
        key, rows = self._key(feeds, outputs)
        size = sum([feed.nbytes for feed in feeds.values()])
        arrived = request.arrived or now
        allowed = self._timeout if request.timeout is None else min(self._timeout, request.timeout)
        useless_after = self.configuration.utility.useless_after(best, self.objective)
        useless_at = arrived + min(allowed, useless_after)
        call = VariantCall(loaded, session, feeds, outputs, key, 1, rows, 0, size, now, useless_at, _AS_DUE)
        call.account = self.account
        call.request = request
        call.source = self
        call.arrived = arrived
        call.since = arrived - max(0.0, self.objective - allowed)
        call.useless_at = useless_at
        call.expires = arrived + allowed
        call.minimum = minimum
        call.chosen = None
        call.on_answer = on_answer
        return call

    def _key(self, feeds: dict[str, Array], outputs: tuple[str, ...]) -> tuple[Any, int]:
        if any(each.loaded.session.batching.profile is None for each in self._variants.candidates):
            return None, 1
        shapes = [feed.shape for feed in feeds.values()]
        if len({shape[:1] for shape in shapes}) != 1 or not shapes[0]:
            return None, 1
        return (outputs, tuple(sorted((name, feed.shape[1:]) for name, feed in feeds.items()))), shapes[0][0] or 1

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, call: VariantCall) -> None:
        """Let a call wait."""
        self._rate.add(call.begin, call.rows)
        self._recent.add(call.begin, call.rows)
        self._waiting.add(call)
        self._ask_at = 0.0

    def discard(self, call: VariantCall) -> None:
        """A call waits no more, if it did."""
        self._waiting.discard(call)

    def take(self, now: float, *, idle: int = 1, workers: int = 1, queue_delay: float = 0.0) -> list[VariantCall]:
        """What the scheduler has run, and on which variant; nothing where it waits, or no worker is free yet."""
        if not idle or now < self._ask_at or not self.has_variants():
            return []
        self._give_up_useless(now)
        first = self._waiting.first()
        if first is None:
            return []
        candidates = self._variants.candidates
        suited = sum(1 for each in candidates if each.accuracy >= first.minimum)
        profiles = self._variants.prefixes[max(1, suited)]
        decision = self._scheduler.decide(self._view(now, profiles, idle, workers))
        if decision is None:
            self._ask_at = now + PATIENCE * self.objective
            return []
        chosen = candidates[decision.variant]
        calls = self._waiting.take(
            now,
            decision.batch,
            profiles[decision.variant].seconds_for,
            lambda call: call.minimum <= chosen.accuracy,
            _together,
        )
        for call in calls:
            call.choose(chosen)
        return calls

    def seconds_to_next(self, now: float, queue_delay: float) -> float:
        """How long the scheduler waits, if no request comes before."""
        return max(0.0, self._ask_at - now)

    def began(self, run: Run, now: float) -> None:
        """A run of what was taken begins."""
        chosen: Candidate = run.calls[0].chosen
        self._runs[run] = now, now + chosen.profile.current.seconds_for(run.rows)

    def ended(self, run: Run, now: float) -> None:
        """It ended; one that nobody waited for any more was broken off, and says nothing of how long runs take."""
        began, _ = self._runs.pop(run)
        chosen: Candidate = run.calls[0].chosen
        if run.live:
            chosen.profile.ran(run.rows, now - began)
        self._scheduler.ended(Ended(chosen.name, run.rows, now - min([call.since for call in run.calls])))
        self._ask_at = 0.0

    def _give_up_useless(self, now: float) -> None:
        """Tell those whom no answer helps any more."""
        self._variants.renew(now)
        quickest = min(profile.seconds[0] for profile in self._variants.prefixes[-1])
        for call in self._waiting.sweep(now, quickest):
            self._dispatcher.give_up(call, DeadlineExceededError(
                f"endpoint '{self.name}' is busy: the answer would be of no use {now + quickest - call.begin:.3g} s "
                "after the request; ask less often, or allow more time"
            ), now)  # fmt: skip

    def _fail_all(self, why: str) -> None:
        now = time.perf_counter()
        for call in self._waiting.clear():
            self._dispatcher.give_up(call, UnavailableError(why), now)

    def _view(self, now: float, profiles: tuple[Profile, ...], idle: int, workers: int) -> View:
        rows, oldest, p90, median = self._waiting.ages(now)
        busy = [max(1e-6, end - now) for _, end in self._runs.values()]
        others = workers - idle - len(busy)
        busy += [profiles[-1].seconds[0]] * others
        return View(
            kinds=(WorkerKind(profiles, (0.0,) * idle + tuple(busy)),),
            objective=self.objective,
            utility=self.configuration.utility,
            count=rows,
            oldest=oldest,
            p90=p90,
            median=median,
            rate=self._rate.at(now),
            recent_rate=self._recent.at(now),
        )


def _together(one: VariantCall, other: VariantCall) -> bool:
    return one.key is not None and one.key == other.key
