"""The placement is fast because it remembers much; here it is compared with one that remembers nothing."""

from __future__ import annotations

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
        jobs.append(replace(view, node_labels=draw(LABELS)))
    return snapshot(jobs, nodes)


def plainly(view: Snapshot) -> dict[str, str]:
    """The node of each job, found by looking at every node for every job."""
    here: dict[str, list[JobView]] = {entry.id: [] for entry in view.nodes}
    by_id: dict[str, NodeView] = {entry.id: entry for entry in view.nodes}
    for entry in view.jobs:
        if not entry.movable and entry.node_id in here:
            here[entry.node_id].append(entry)
    for entry in sorted(view.jobs, key=lambda one: (one.submitted_at, one.id)):
        if not entry.movable:
            continue
        fitting = [
            name
            for name, jobs in here.items()
            if can_hold(by_id[name], entry)
            and entry.resources.memory_bytes
            <= max(by_id[name].memory_bytes - sum(other.resources.memory_bytes for other in jobs), 0)
        ]
        if fitting:
            chosen = min(fitting, key=lambda name: fewest_jobs_per_core(entry, by_id[name], here[name]))
            here[chosen].append(entry)
    return {entry.id: name for name, jobs in here.items() for entry in jobs}


@given(view=snapshots())
@settings(max_examples=300, deadline=None)
def test_every_job_goes_where_a_plain_search_puts_it(view: Snapshot) -> None:
    assert place(view).node_of == plainly(view)
    assert place(view, lambda *seen: fewest_jobs_per_core(*seen)).node_of == plainly(view)
