"""What a what-if begins with: the present, and what is asked of it. Knows nothing of the simulator."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tiercel.broker.scheduling.interface import PastRun, Snapshot
from tiercel.broker.scheduling.options import Options
from tiercel.broker.what_if.calibration import Calibration
from tiercel.broker.what_if.paces import Paces
from tiercel.core.what_if import Changes, WhatIf

MAX_JOBS = 100
"""So many jobs are simulated; of more the ones that run and then the oldest."""


@dataclass(frozen=True, slots=True)
class Present:
    """The present.

    Attributes:
        snapshot: What the policy would be shown now.
        policy: The name of the policy that decides.
        options: Its options.
        interval_seconds: How often it looks.
        left_out: Jobs that are not in the snapshot since there are too many.
        paces: How many times the CPU seconds of earlier runs runs needed lately.
    """

    snapshot: Snapshot
    policy: str
    options: Options = field(default_factory=dict)
    interval_seconds: float = 2.0
    left_out: int = 0
    paces: Paces = field(default_factory=Paces)

    @property
    def fingerprint(self) -> str:
        """Stands for the jobs, where they are and how far, the nodes and the policy."""
        jobs = [(job.id, job.node_id, [tier.state.value for tier in job.tiers]) for job in self.snapshot.jobs]
        nodes = [(node.id, node.cpu_cores, node.drain.value) for node in self.snapshot.nodes]
        told = repr((sorted(jobs), sorted(nodes), self.policy, sorted(self.options.items())))
        return hashlib.sha256(told.encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Question:
    """What a child process is asked.

    Attributes:
        present: The present.
        changes: What is different.
        tenant: Who asks, whose jobs are told of by name; empty for an operator, who is told of all.
        calibrations: How far off earlier predictions were, by policy.
        is_patient: Whether nobody waits for the answer, so that it may take long while others need the processor.
    """

    present: Present
    changes: Changes
    tenant: str = ""
    calibrations: Mapping[str, Calibration] = field(default_factory=dict)
    is_patient: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """What a child process tells: an answer, or why there is none.

    Attributes:
        answer: The answer, or None.
        code: The class of the error, where it is one of the catalogue; else empty.
        error: Its message.
        field: The field that is wrong, or empty.
    """

    answer: WhatIf | None = None
    code: str = ""
    error: str = ""
    field: str = ""


def bounded(present: Present, wanted: frozenset[str] = frozenset()) -> Present:
    """The present with at most so many jobs, and without what no job in it needs; all that is left can be pickled.

    Args:
        present: The present.
        wanted: Jobs that stay, by id.
    """
    snapshot = present.snapshot
    order = sorted(snapshot.jobs, key=lambda job: (job.id not in wanted, not job.node_id, job.submitted_at, job.id))
    jobs = tuple(sorted(order[:MAX_JOBS], key=lambda job: job.id))
    used = {job.workload for job in jobs}
    # Of other programs only what their runs took in all is of use, as a guess.
    history = {name: runs if name in used else tuple(map(_end, runs)) for name, runs in snapshot.history.items()}
    keys = {key for job in jobs if not history.get(job.workload) for key in job.similar}
    similar = {key: runs for key, runs in snapshot.similar.items() if key in keys}
    restarts = {
        name: replace(cost, start_seconds=dict(cost.start_seconds))
        for name, cost in snapshot.restarts.items()
        if name in used
    }
    return replace(
        present,
        snapshot=replace(
            snapshot, jobs=jobs, history=history, restarts=restarts, similar=similar, given=dict(snapshot.given)
        ),
        left_out=len(order) - len(jobs),
        paces=Paces(present.paces.seen),
    )


def _end(run: PastRun) -> PastRun:
    return replace(run, curve=run.curve[-1:])
