"""How far off what-ifs are where only the work is unknown: the recorded runs, each alone on a core, asked as live.

Nobody else is there, and a CPU second does what it did in the earlier runs, which are those of the same kind with other
training seeds. So what is left is how much runs of one program differ: no what-if beside others can be nearer.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.prediction_error import LEAST_SECONDS, Settled, figures_of
from benchmarks.results import Json
from benchmarks.scheduling.kinds import KINDS
from benchmarks.scheduling.recordings import Recording, Recordings, remembered
from tiercel.broker.actors.predictions import LOOK_SECONDS
from tiercel.broker.scheduling.interface import CurvePoint, JobView, NodeView, PastRun, Snapshot, Trigger
from tiercel.broker.what_if.answer import answer
from tiercel.broker.what_if.predictions import to_record
from tiercel.broker.what_if.present import Present, Question
from tiercel.core.jobs import Observation, Tier, TierState, TierStatus
from tiercel.core.predictions import Prediction
from tiercel.core.what_if import Changes

_JOB, _NODE = "job", NodeView("node", 1.0, 64 * 1024**3)


def floor(recordings: Recordings) -> Json:
    """The errors of all recorded runs: of what is told when they begin, of what is told later, and of both."""
    runs = [list(settled(run, recordings)) for _, run in sorted(recordings.runs.items())]
    ways = {"when it begins": (True,), "later": (False,), "all": (True, False)}
    return {
        name: figures_of([[each for made, each in run if (made == 0.0) in at_once] for run in runs])["drawn"]
        for name, at_once in ways.items()
    }


def settled(run: Recording, recordings: Recordings) -> Iterator[tuple[float, Settled]]:
    """What is predicted of a run while it goes on, by the broker's own rule, after how many seconds, and what came."""
    past = tuple(
        PastRun(tuple(CurvePoint(*point) for point in remembered(each)))
        for each in recordings.earlier(run.kind, run.training_seed)
    )
    works = dict(enumerate(run.works(), 1))
    made: dict[tuple[str, int], list[Prediction]] = {}
    now = 0.0
    while now < max(works.values()):
        snapshot = Snapshot(now, Trigger.INTERVAL, (_view(run, now),), (_NODE,), history={run.kind: past})
        found = answer(Question(Present(snapshot, "fair"), Changes(), is_patient=True))
        for each in to_record(found, now, {_JOB: "tenant"}, made):
            made.setdefault((_JOB, each.tier), []).append(each)
            if works[each.tier] - now > LEAST_SECONDS:
                yield now, Settled(each.drawn, works[each.tier] - now, alone=True)
        now += LOOK_SECONDS


def _view(run: Recording, now: float) -> JobView:
    """The run after so many seconds, on a core of its own."""
    kind = KINDS[run.kind]
    spec = kind.spec(_JOB, run.training_seed, "process")
    per_epoch = max(round(len(run.curve) / kind.max_epochs), 1)
    seen = tuple(
        Observation(cpu, 1 + number // per_epoch, value, cpu)
        for number, (cpu, value) in enumerate(run.curve)
        if cpu <= now
    )
    tiers = tuple(
        TierStatus(number, Tier(target), TierState.DELIVERED if work <= now else TierState.PENDING)
        for number, (target, work) in enumerate(zip(kind.targets, run.works(), strict=True), 1)
    )
    return JobView(
        _JOB,
        "tenant",
        0.0,
        spec.direction,
        tiers,
        spec.resources,
        node_id=_NODE.id,
        movable=False,
        observations=seen,
        cpu_seconds=now,
        workload=run.kind,
        started_at=0.0,
        max_epochs=kind.max_epochs,
        continues=True,
    )
