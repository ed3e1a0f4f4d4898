"""The placement is fast because it remembers much; here it is compared with one that remembers nothing."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from testing.scheduling import GIB, job, node, snapshot
from tiercel.broker.scheduling.feasible import can_hold
from tiercel.broker.scheduling.interface import JobView, NodeView, Snapshot
from tiercel.broker.scheduling.placement import fewest_jobs_per_core, place

NO_LABELS: frozenset[tuple[str, str]] = frozenset()
LABELS = st.sampled_from([NO_LABELS, NO_LABELS | {("disk", "ssd")}])


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    nodes = [
        replace(
            node(
                f"node{index}",
                cpu_cores=draw(st.sampled_from([1.0, 2.0, 3.0])),
                memory_bytes=draw(st.integers(0, 6)) * GIB,
                runtimes=draw(st.sampled_from([("process",), ("docker", "process")])),
            ),
            labels=draw(LABELS),
        )
        for index in range(draw(st.integers(0, 5)))
    ]
    jobs = []
    for index in range(draw(st.integers(0, 16))):
        node_id = draw(st.sampled_from(["", "", "", "gone", *(view.id for view in nodes)]))
        view = job(
            f"job{index}",
            node_id=node_id,
            movable=node_id == "" or draw(st.booleans()),
            submitted_at=draw(st.sampled_from([0.0, 1.0])),
            cpu_cores=draw(st.sampled_from([1.0, 2.0])),
            memory_bytes=draw(st.integers(0, 4)) * GIB,
            runtime=draw(st.sampled_from(["", "docker"])),
        )
        times = draw(st.sampled_from([None, 0.5, 2.0])) if not view.movable else None
        stopping = not view.movable and draw(st.booleans())
        jobs.append(replace(view, node_labels=draw(LABELS), started_at=times, stopping=stopping))
    return snapshot(jobs, nodes)


def plainly(view: Snapshot) -> dict[str, str]:
    """The node of each job, found by looking at every node for every job."""
    here: dict[str, list[JobView]] = {entry.id: [] for entry in view.nodes}
    by_id: dict[str, NodeView] = {entry.id: entry for entry in view.nodes}
    kept: dict[str, tuple[JobView, list[JobView], int]] = {}
    keeping: set[Hashable] = set()
    for entry in view.jobs:
        if not entry.movable and entry.node_id in here:
            here[entry.node_id].append(entry)
    for entry in sorted(view.jobs, key=lambda one: (one.submitted_at, one.id)):
        if not entry.movable:
            continue
        able = [name for name in here if can_hold(by_id[name], entry)]
        fitting = [
            name
            for name in able
            if lacks(entry, by_id[name], here[name]) == 0
            and leaves_room(entry, by_id[name], here[name], kept.get(name))
        ]
        kind = (entry.runtime, entry.resources.cpu_cores, entry.node_labels)
        if fitting:
            chosen = min(fitting, key=lambda name: fewest_jobs_per_core(entry, by_id[name], here[name]))
            here[chosen].append(entry)
        elif kind not in keeping and (free := [name for name in able if name not in kept]):
            soonest = min(free, key=lambda name: (*shortfalls(entry, by_id[name], here[name]), name))
            kept[soonest] = (entry, staying(entry, by_id[soonest], here[soonest]), len(here[soonest]))
            keeping.add(kind)
    return {entry.id: name for name, jobs in here.items() for entry in jobs}


def lacks(entry: JobView, where: NodeView, jobs: Sequence[JobView]) -> int:
    """Bytes that a job lacks beside others."""
    free = max(where.memory_bytes - sum(other.resources.memory_bytes for other in jobs), 0)
    return max(entry.resources.memory_bytes - free, 0)


def shortfalls(entry: JobView, where: NodeView, jobs: Sequence[JobView]) -> tuple[int, int]:
    """Bytes that it lacks beside those that began later, and beside all that do not stop."""
    there = [other for other in jobs if not other.stopping]
    return lacks(entry, where, later(entry, there)), lacks(entry, where, there)


def later(entry: JobView, jobs: Sequence[JobView]) -> list[JobView]:
    return [other for other in jobs if other.started_at is None or other.started_at > entry.submitted_at]


def staying(entry: JobView, where: NodeView, jobs: Sequence[JobView]) -> list[JobView]:
    """Those that are there still when a job that waits begins."""
    there = [other for other in jobs if not other.stopping]
    return there if lacks(entry, where, there) == 0 else later(entry, there)


def leaves_room(
    entry: JobView, where: NodeView, jobs: Sequence[JobView], kept: tuple[JobView, list[JobView], int] | None
) -> bool:
    """Whether there is room for the job that a node is kept for beside those that stay, those that came and this."""
    if kept is None or not entry.resources.memory_bytes:
        return True
    waiting, stay, before = kept
    return lacks(waiting, where, [*stay, *jobs[before:], entry]) == 0


@given(view=snapshots())
@settings(max_examples=300, deadline=None)
def test_every_job_goes_where_a_plain_search_puts_it(view: Snapshot) -> None:
    assert place(view).node_of == plainly(view)
    assert place(view, lambda *seen: fewest_jobs_per_core(*seen)).node_of == plainly(view)
