"""The answer: many futures of the present and of the changed present, put side by side."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tiercel.broker.scheduling.interface import JobView
from tiercel.broker.simulation.result import EndpointOutcome, JobOutcome, Result
from tiercel.broker.simulation.simulation import simulate
from tiercel.broker.what_if.beside import both
from tiercel.broker.what_if.calibration import Calibration, calibration
from tiercel.broker.what_if.present import Question
from tiercel.broker.what_if.scenario import World, scenario, world
from tiercel.core.figures import percent
from tiercel.core.jobs import TierState, TierStatus
from tiercel.core.what_if import (
    Changes,
    EndpointPrediction,
    InTime,
    JobPrediction,
    Span,
    TierPrediction,
    WhatIf,
    Whereabouts,
)

ANOTHER = "another tenant's"
STRANDED = "fits on no node"
# Jobs times futures: about a second of work.
_WORK = 150
_LEAST_DRAWS, _MOST_DRAWS = 3, 15
# A tier that moves by less is not worth a sentence.
_WORTH_TELLING = 0.05

_ASSUMPTIONS = (
    "What is left of a job is drawn from earlier runs of its program; without any it is unknown.",
    "A policy begins anew: what it remembers besides jobs, nodes and earlier runs is not carried over.",
    "A second of CPU is worth the same beside other jobs as alone; requests come as they came last.",
    "Nothing else is submitted, and nothing fails.",
)


@dataclass(frozen=True, slots=True)
class _Side:
    """Futures of one world, by job and by endpoint."""

    world: World
    calibration: Calibration
    jobs: Mapping[str, Sequence[JobOutcome]]
    endpoints: Mapping[str, Sequence[EndpointOutcome]]


def answer(question: Question) -> WhatIf:
    """Simulate both, and compare.

    The same question has the same answer, ``seconds`` aside.

    Raises:
        InvalidSpecError: There is no such policy or option.
        NotFoundError: There is no such job, node or endpoint.
        SimulationError: A policy brought the simulation to a standstill, or made an unsound plan.
    """
    begin = time.perf_counter()
    present, changes = question.present, question.changes
    draws = min(max(_WORK // max(len(present.snapshot.jobs), 1), _LEAST_DRAWS), _MOST_DRAWS)
    now, then = _sides(question, draws)
    jobs = tuple(_job(job_id, now, then, question.tenant) for job_id in sorted({*_ids(now.world), *_ids(then.world)}))
    names = sorted({*now.endpoints, *then.endpoints})
    endpoints = tuple(_endpoint(name, now, then, question.tenant) for name in names)
    return WhatIf(
        snapshot=present.fingerprint,
        policy=present.policy,
        difference=(
            *(sentence for job in jobs if (sentence := _difference(job, changes))),
            *(sentence for endpoint in endpoints if (sentence := _difference_in_time(endpoint))),
        ),
        jobs=jobs,
        endpoints=endpoints,
        assumptions=_ASSUMPTIONS,
        left_out=present.left_out,
        draws=draws,
        seconds=time.perf_counter() - begin,
    )


def _sides(question: Question, draws: int) -> tuple[_Side, _Side]:
    """The present as it is, and with changes; two futures at once where somebody waits."""
    changed = question.changes != Changes()
    worlds = [world(question.present, each) for each in (Changes(), question.changes)[: 1 + changed]]
    futures = [(number, seed) for number, of in enumerate(worlds) if of.snapshot.nodes for seed in range(draws)]

    def some(begin: int, step: int) -> list[Result]:
        return [_simulated(worlds[number], seed, draws) for number, seed in futures[begin::step]]

    if question.is_patient:
        results = some(0, 1)
    else:
        even, odd = both(partial(some, 0, 2), partial(some, 1, 2))
        results = [(odd if at % 2 else even)[at // 2] for at in range(len(futures))]
    drawn = list(zip(futures, results, strict=True))
    sides = [
        _side(of, [result for (each, _), result in drawn if each == number], question.calibrations)
        for number, of in enumerate(worlds)
    ]
    return sides[0], sides[-1]


def _simulated(of: World, seed: int, draws: int) -> Result:
    return simulate(scenario(of, seed, draws), of.policy, seed, of.options)


def _side(of: World, results: Sequence[Result], calibrations: Mapping[str, Calibration]) -> _Side:
    jobs: dict[str, list[JobOutcome]] = {}
    endpoints: dict[str, list[EndpointOutcome]] = {}
    for result in results:
        for job in result.jobs:
            jobs.setdefault(job.id, []).append(job)
        for endpoint in result.endpoints:
            endpoints.setdefault(endpoint.name, []).append(endpoint)
    return _Side(of, calibrations.get(of.policy, calibration(())), jobs, endpoints)


def _ids(of: World) -> set[str]:
    return set(of.views)


def _job(job_id: str, now: _Side, then: _Side, tenant: str) -> JobPrediction:
    side = now if job_id in now.world.rests else then
    view = side.world.views[job_id]
    own = tenant in {"", view.tenant}
    known = side.world.rests[job_id].known
    predicted = tuple(
        _tier(tier, _span(now, job_id, tier.number), _span(then, job_id, tier.number), now, then)
        if known
        else TierPrediction(tier.number, tier.target)
        for tier in view.tiers
        if tier.state in {TierState.PENDING, TierState.UNREACHABLE}
    )
    return JobPrediction(
        job_id if own else "",
        view.name if own else ANOTHER,
        Whereabouts(_place(now, job_id)),
        Whereabouts(_place(then, job_id)),
        predicted if own else (),
        _note(view, then, known=known),
    )


def _tier(tier: TierStatus, now_drawn: Span | None, then_drawn: Span | None, now: _Side, then: _Side) -> TierPrediction:
    present = now.calibration.told(now_drawn) if now_drawn is not None else None
    changed = then.calibration.told(then_drawn) if then_drawn is not None else None
    return TierPrediction(tier.number, tier.target, present, changed, now_drawn)


def _note(view: JobView, then: _Side, *, known: bool) -> str:
    held = {job.id for job in then.world.snapshot.jobs}
    if view.id in then.world.views and view.id not in held:
        return STRANDED
    return "" if known else "no earlier run of its program has ended"


def _place(side: _Side, job_id: str) -> str:
    """Where it runs first, in the first future."""
    outcomes = side.jobs.get(job_id)
    return outcomes[0].nodes[-1] if outcomes and outcomes[0].nodes else ""


def _span(side: _Side, job_id: str, number: int) -> Span | None:
    """The median and the outer tenths; None where most futures do not reach the tier."""
    outcomes = side.jobs.get(job_id, ())
    times = sorted(
        max(outcome.arrived_at + seconds, 0.0) if (seconds := outcome.time_to_tier(number)) is not None else math.inf
        for outcome in outcomes
    )
    if not times or math.isinf(_quantile(times, 0.5)):
        return None
    finite = [each for each in times if each < math.inf]
    return Span(_quantile(times, 0.5), _quantile(finite, 0.1), _quantile(finite, 0.9))


def _quantile(ordered: Sequence[float], part: float) -> float:
    at = part * (len(ordered) - 1)
    low, high = ordered[math.floor(at)], ordered[math.ceil(at)]
    return high if math.isinf(high) else low + (at - math.floor(at)) * (high - low)


def _endpoint(name: str, now: _Side, then: _Side, tenant: str) -> EndpointPrediction:
    views = (*now.world.snapshot.endpoints, *then.world.snapshot.endpoints)
    owner = next(view.tenant for view in views if view.name == name)
    return EndpointPrediction(name if tenant in {"", owner} else ANOTHER, _in_time(now, name), _in_time(then, name))


def _in_time(side: _Side, name: str) -> InTime:
    outcomes = side.endpoints.get(name, ())
    requests = math.fsum(each.requests for each in outcomes)
    if requests <= 0:
        return InTime()
    delays = [each.mean_delay_seconds for each in outcomes if each.mean_delay_seconds is not None]
    view = next((each for each in side.world.snapshot.endpoints if each.name == name), None)
    within = math.fsum(each.in_objective for each in outcomes) / requests
    has_objective = view is not None and view.objective_seconds is not None
    return InTime(min(within, 1.0) if has_objective else None, sum(delays) / len(delays) if delays else None)


def _difference(job: JobPrediction, changes: Changes) -> str:
    name = f"{job.id or job.name}"
    if job.id in changes.cancel:
        return f"{name} is cancelled"
    if job.note == STRANDED:
        return f"{name} waits: it fits on no node"
    if job.present.node_id and job.changed.node_id and job.present.node_id != job.changed.node_id:
        return f"{name} goes on {job.changed.node_id} in place of {job.present.node_id}"
    if not job.tiers:
        return ""
    first = job.tiers[0]
    if first.present is None or first.changed is None:
        return ""
    saved = first.present.seconds - first.changed.seconds
    if abs(saved) <= max(_WORTH_TELLING * first.present.seconds, 0.5):
        return ""
    return f"{name} reaches tier {first.tier} {abs(saved):.0f} s {'sooner' if saved > 0 else 'later'}"


def _difference_in_time(endpoint: EndpointPrediction) -> str:
    present, changed = endpoint.present.in_objective, endpoint.changed.in_objective
    if present is None or changed is None or abs(changed - present) <= _WORTH_TELLING:
        return ""
    name = f"{ANOTHER} endpoint" if endpoint.name == ANOTHER else f"endpoint {endpoint.name}"
    return f"{name} answers {percent(changed)} of its requests in time in place of {percent(present)}"
