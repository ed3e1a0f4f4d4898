"""From news to what a trace shows of jobs: submit, place, run start, run, tier reached, delivery, first answer.

Pure but for what it remembers, which is bounded. What began before the broker did is not told of.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from tiercel.core.events import (
    EndpointEvent,
    EndpointGone,
    EndpointMeasured,
    JobEvent,
    ShareChanged,
    StateChanged,
    TierChanged,
)
from tiercel.core.jobs import JobState
from tiercel.core.tiers import TierState
from tiercel.core.traces import JobSpan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tiercel.core.endpoints import Version
    from tiercel.core.events import Event
    from tiercel.core.tiers import TierStatus
    from tiercel.core.traces import Tracing

MOST_JOBS: Final = 10_000
MOST_ENDPOINTS: Final = 1_000
"""So many are remembered; of more, those that were remembered last."""

# What is measured of an endpoint is told once a second: the first time may count what an earlier version answered.
_MEASURED_SECONDS: Final = 1.5
_SPANS: Final = {JobState.PENDING: "place", JobState.STARTING: "run start", JobState.RUNNING: "run"}

K = TypeVar("K")
T = TypeVar("T")


@dataclass(slots=True)
class _Life:
    """What is remembered of a job."""

    state: JobState
    since: float
    node: str = ""
    reached: dict[int, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Answer:
    """A version that answers."""

    job_id: str
    version: int
    tier: int
    since: float
    is_asked: bool = False


def trace_jobs(tracing: Tracing, is_known: Callable[[str], bool]) -> Callable[[Event], None]:
    """What takes news and has the parts of jobs' lives traced.

    Args:
        tracing: Gets them.
        is_known: See :class:`JobSpans`.
    """
    spans = JobSpans(is_known)

    def note(event: Event) -> None:
        for span in spans.note(event):
            tracing.add(span)

    return note


class JobSpans:
    """Takes news, and gives the parts that are over with it.

    Args:
        is_known: Whether there was a job of this id before its news came.
    """

    def __init__(self, is_known: Callable[[str], bool]) -> None:
        self._is_known = is_known
        self._jobs: dict[str, _Life] = {}
        self._answers: dict[tuple[str, str], _Answer] = {}  # by endpoint and variant

    def note(self, event: Event) -> Iterator[JobSpan]:
        """What is over with this."""
        match event:
            case JobEvent(change=StateChanged(state=state, reason=reason)):
                yield from self._state_changed(event, state, reason)
            case JobEvent(change=ShareChanged(node_id=node_id)) if event.job_id in self._jobs:
                self._jobs[event.job_id].node = node_id
            case JobEvent(change=TierChanged(tier=tier)):
                yield from self._tier_changed(event, tier)
            case EndpointEvent(version=version):
                self._answers_from_now(event.endpoint, version, event.at)
            case EndpointGone(endpoint=endpoint, variant=variant):
                self._answers.pop((endpoint, variant), None)
            case EndpointMeasured():
                yield from self._measured(event)

    def _state_changed(self, event: JobEvent, state: JobState, reason: str) -> Iterator[JobSpan]:
        life = self._jobs.pop(event.job_id, None)
        if life is None:
            if state is JobState.PENDING and not self._is_known(event.job_id):
                told = {"tiercel.tenant": event.tenant}
                yield JobSpan(event.job_id, "submit", event.at, event.at, told, is_first=True)
            life = _Life(state, event.at)
        elif life.state is not state:
            if life.state in _SPANS:
                told = {"tiercel.node": life.node} if life.node else {}
                error = reason if state is JobState.FAILED else ""
                yield JobSpan(event.job_id, _SPANS[life.state], life.since, event.at, told, error)
            life.state, life.since = state, event.at
        if not state.is_final:
            _remember(self._jobs, event.job_id, life, MOST_JOBS)

    def _tier_changed(self, event: JobEvent, tier: TierStatus) -> Iterator[JobSpan]:
        life = self._jobs.get(event.job_id)
        if life is None:
            return
        told: dict[str, str | int | float] = {"tiercel.tier": tier.number}
        match tier.state:
            case TierState.REACHED if tier.number not in life.reached:
                life.reached[tier.number] = event.at
                if tier.reached_value is not None:
                    told["tiercel.value"] = tier.reached_value
                yield JobSpan(event.job_id, "tier reached", life.since, event.at, told)
            case TierState.DELIVERED | TierState.FAILED if tier.number in life.reached:
                began = life.reached.pop(tier.number)
                error = tier.reason if tier.state is TierState.FAILED else ""
                if tier.version is not None:
                    told["tiercel.version"] = tier.version
                yield JobSpan(event.job_id, "delivery", began, event.at, told, error)

    def _answers_from_now(self, endpoint: str, version: Version, at: float) -> None:
        key = (endpoint, version.variant)
        before = self._answers.get(key)
        if before is None or before.version != version.version:
            answer = _Answer(version.job_id, version.version, version.tier, at)
            _remember(self._answers, key, answer, MOST_ENDPOINTS)

    def _measured(self, event: EndpointMeasured) -> Iterator[JobSpan]:
        if event.load.delay_seconds is None:  # nothing was answered
            return
        for variant in [name for name, part in event.load.answered_parts.items() if part > 0] or [""]:
            answer = self._answers.get((event.endpoint, variant))
            if answer is None or answer.is_asked or event.at < answer.since + _MEASURED_SECONDS:
                continue
            answer.is_asked = True
            told: dict[str, str | int | float] = {
                "tiercel.endpoint": event.endpoint,
                "tiercel.version": answer.version,
                "tiercel.tier": answer.tier,
                "tiercel.node": event.node_id,
            }
            yield JobSpan(answer.job_id, "first answer", answer.since, event.at, told)


def _remember(known: dict[K, T], key: K, value: T, most: int) -> None:
    known.pop(key, None)
    if len(known) >= most:
        del known[next(iter(known))]
    known[key] = value
