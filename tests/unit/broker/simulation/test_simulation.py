"""Small simulations whose every moment can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testing.simulation import GIB, scenario, steps
from tiercel.broker.scheduling.interface import Assignment, JobView, Plan, Snapshot, Trigger
from tiercel.broker.scheduling.loop import LoopSettings
from tiercel.broker.scheduling.registry import BUILT_IN
from tiercel.broker.scheduling.srpt_oracle import OracleSnapshot
from tiercel.broker.simulation import MachineSettings, SimulationError, simulate
from tiercel.broker.simulation.cluster import Colocation
from tiercel.broker.simulation.presets import mixed_jobs
from tiercel.broker.simulation.result import JobOutcome
from tiercel.broker.simulation.scenario import UnsoundPlanError
from tiercel.core.errors import InvalidSpecError
from tiercel.core.jobs import Direction, JobState
from tiercel.core.shares import Share

# Start-up of one CPU second, tier 1 after two, tier 2 after three; then it is done.
SMALL = steps(0.5, 0.9)


def times(job: JobOutcome) -> list[float | None]:
    return [tier.reached_seconds for tier in job.tiers]


def test_a_job_alone_goes_at_the_speed_of_its_thread() -> None:
    (job,) = simulate(scenario((0, SMALL), cores=4.0), "fair").jobs
    assert times(job) == [2.0, 3.0]
    assert [tier.delivered_seconds for tier in job.tiers] == [2.5, 3.5]
    assert (job.state, job.finished_at, job.cpu_seconds, job.alone_seconds) == (JobState.COMPLETED, 3.5, 3.0, 3.0)


def test_two_that_arrive_together_share_the_core() -> None:
    result = simulate(scenario((0, SMALL), (0, SMALL)), "fair")
    assert [times(job) for job in result.jobs] == [[4.0, 6.0], [4.0, 6.0]]


def test_who_comes_later_slows_the_first_one_down_from_then_on() -> None:
    first, second = simulate(scenario((0, SMALL), (2, SMALL)), "fair").jobs
    # Alone until 2 s, then half a core each until the first one is done at 4 s; the second has one CPU second by then.
    assert times(first) == [2.0, 4.0]
    assert times(second) == [pytest.approx(3.0), pytest.approx(4.0)]


def test_the_co_location_penalty_burns_cpu() -> None:
    result = simulate(scenario((0, SMALL), (0, SMALL), colocation=Colocation(0.28)), "fair")
    efficiency = 1 - 0.28 * 0.5
    for job in result.jobs:
        assert times(job) == [pytest.approx(2 / 0.5 / efficiency), pytest.approx(3 / 0.5 / efficiency)]
        assert job.cpu_seconds == pytest.approx(3 / efficiency)
        assert job.alone_seconds == pytest.approx(3.0)


@pytest.mark.parametrize(("exponent", "part"), [(1.0, 0.5), (2.0, 0.25), (0.0, 1.0)])
def test_a_cpu_second_of_a_slow_node_does_less(exponent: float, part: float) -> None:
    planned = scenario((0, replace(SMALL, speed_exponent=exponent)))
    planned = replace(planned, speeds=dict.fromkeys((view.id for view in planned.nodes), 0.5))
    (job,) = simulate(planned, "fair").jobs
    assert times(job) == pytest.approx([2.0 / part, 3.0 / part])
    assert job.cpu_seconds == pytest.approx(3.0 / part)


def test_what_a_process_does_after_its_last_report_takes_cpu_from_others() -> None:
    leaving = replace(steps(0.5, 0.9), closing_cpu_seconds=1.0, continue_after_last_tier=True)
    first, second = simulate(scenario((0, leaving), (0, steps(0.5, 0.9, 0.9, 0.9))), "fair").jobs
    assert times(first) == [4.0, 6.0]
    # Half a core until the other one, whose last tier is delivered, is stopped at 6.5 s; then all of it.
    assert (first.finished_at, first.cpu_seconds, first.alone_seconds) == pytest.approx((7.25, 4.0, 4.0))
    assert times(second) == [4.0, 6.0]


def test_what_else_uses_a_node_leaves_less_for_runs() -> None:
    planned = scenario((0, SMALL), (0, SMALL), cores=2.0)
    busy = replace(planned, machines=replace(planned.machines, overhead_cores=0.4))
    assert [times(job) for job in simulate(planned, "fair").jobs] == [[2.0, 3.0], [2.0, 3.0]]
    assert [times(job) for job in simulate(busy, "fair").jobs] == [[2.5, 3.75], [2.5, 3.75]]


def test_a_job_stops_after_its_last_tier_was_delivered_unless_it_trains_on() -> None:
    values = (0.5, 0.9, 0.9, 0.9, 0.9, 0.9)
    (stops,) = simulate(scenario((0, steps(*values))), "fair").jobs
    # Tier 2 at 3 s, delivered half a second later, and a tenth until the run is gone.
    assert stops.finished_at == pytest.approx(3.6)
    (trains_on,) = simulate(scenario((0, steps(*values, trains_on=True))), "fair").jobs
    assert trains_on.finished_at == pytest.approx(7.0)


def test_a_target_that_is_never_reached_stays_open() -> None:
    result = simulate(scenario((0, steps(0.5, 0.6, 0.7))), "fair")
    (job,) = result.jobs
    assert (job.state, times(job), job.tiers[1].true_work) == (JobState.MISSED, [2.0, None], None)
    assert "1 of 2 tiers delivered" in job.reason
    assert result.missed_tiers() == 0


def test_a_smaller_metric_may_be_better() -> None:
    losses = steps(3.0, 1.0, 0.5, tiers=(1.0, 0.5), direction=Direction.MIN)
    assert times(simulate(scenario((0, losses)), "fair").jobs[0]) == [3.0, 4.0]


def test_memory_makes_a_job_wait_until_another_one_is_gone() -> None:
    large = steps(0.5, 0.9, memory_bytes=40 * GIB)
    first, second = simulate(scenario((0, large), (1, large), cores=2.0), "fair").jobs
    assert first.finished_at == 3.5
    # The run is gone when training ended, at 3 s, though its model was still being delivered.
    assert second.started_at == 3.0


def test_a_job_that_fits_on_no_node_is_refused_at_once() -> None:
    with pytest.raises(SimulationError, match="fit on no node"):
        simulate(scenario((0, steps(0.9, cores=2.0))), "fair")


def test_a_run_that_is_silent_for_too_long_fails_as_it_would_live() -> None:
    # Sharing the core, the start-up and the first report take four seconds, which count as two.
    impatient = steps(0.5, 0.9, timeout=1.5)
    jobs = simulate(scenario((0, impatient), (0, SMALL)), "fair").jobs
    assert [job.state for job in jobs] == [JobState.FAILED, JobState.COMPLETED]
    assert "it hangs" in jobs[0].reason
    assert jobs[0].finished_at == pytest.approx(3.1, abs=1e-3)


def test_a_run_that_waits_for_its_turn_does_not_hang() -> None:
    """At the floor its first report takes minutes; it was asked for one within three seconds."""
    patient, waiting = steps(*[0.1] * 60, 0.9, startup=1.0), steps(0.5, 0.9, timeout=3.0)
    result = simulate(scenario((0, patient), (0, waiting)), "fifo")
    assert [job.state for job in result.jobs] == [JobState.COMPLETED, JobState.COMPLETED]
    assert result.jobs[1].time_to_tier(1) == pytest.approx(62.0, rel=0.05)


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(InvalidSpecError, match="no policy 'none'"):
        simulate(scenario((0, SMALL)), "none")


class Watcher:
    """Places everything on a node by name, and keeps what it was shown."""

    name: str = "watcher"

    def __init__(self, *node_ids: str) -> None:
        self.node_ids = node_ids
        self.seen: list[Snapshot] = []

    def initial_state(self) -> int:
        return 0

    def plan(self, snapshot: Snapshot, state: int) -> tuple[Plan, int]:
        self.seen.append(snapshot)
        node_id = self.node_ids[min(state, len(self.node_ids) - 1)]
        assignments = tuple(
            Assignment(job.id, node_id if job.movable or job.migratable else job.node_id, self.share(job))
            for job in snapshot.jobs
        )
        return Plan(assignments=assignments), state + 1

    def share(self, job: JobView) -> Share:
        del job
        return Share(0.25, reason="so that there is one")


def test_the_policy_is_asked_at_once_on_events_and_else_at_growing_intervals() -> None:
    watcher = Watcher("node1")
    simulate(replace(scenario((1.25, steps(*[0.1] * 7, 0.9))), loop=LoopSettings(interval_seconds=1.0)), watcher)
    asked = [(snapshot.now, snapshot.trigger) for snapshot in watcher.seen]
    assert asked == [
        (1.0, Trigger.INTERVAL),
        (1.25, Trigger.ARRIVAL),
        (2.25, Trigger.INTERVAL),
        (4.25, Trigger.INTERVAL),
        (8.25, Trigger.INTERVAL),
        (10.25, Trigger.EXIT),
    ]


def test_policies_see_jobs_as_live() -> None:
    watcher = Watcher("node1")
    planned = replace(scenario((0, steps(0.3, 0.5, 0.9)), cores=2.0), loop=LoopSettings(interval_seconds=1.5))
    simulate(planned, watcher)
    arriving = watcher.seen[0].jobs[0]
    assert (arriving.movable, arriving.node_id) == (True, "")
    oracle = watcher.seen[0]
    assert isinstance(oracle, OracleSnapshot)
    assert oracle.true_work == {arriving.id: (3.0, 4.0)}
    at_tier = next(snapshot for snapshot in watcher.seen if snapshot.trigger is Trigger.TIER)
    (view,) = at_tier.jobs
    assert (at_tier.now, view.node_id, view.movable, view.migratable) == (3.0, "node1", False, False)
    assert [(seen.at, seen.epoch, seen.value, seen.cpu_seconds) for seen in view.observations] == [
        (2.0, 1, 0.3, 2.0),
        (3.0, 2, 0.5, 3.0),
    ]
    assert (view.cpu_seconds, view.workload, view.started_at, view.max_epochs) == (3.0, "steps", 0.0, 3)
    assert view.tiers[0].reached_value == 0.5


def test_what_is_over_is_remembered_for_the_next_run_of_the_same_workload() -> None:
    watcher = Watcher("node1")
    simulate(scenario((0, steps(0.5, 0.4, 0.9)), (20, SMALL)), watcher)
    assert "steps" not in watcher.seen[0].history
    (past,) = next(snapshot for snapshot in watcher.seen if snapshot.now >= 20).history["steps"]
    # The best so far, where it improved.
    assert [(point.cpu_seconds, point.value) for point in past.curve] == [(2.0, 0.5), (4.0, 0.9)]


def test_unsound_plans_are_refused() -> None:
    class Greedy(Watcher):
        def share(self, job: JobView) -> Share:
            return Share(0.9, reason="mine")

    with pytest.raises(UnsoundPlanError, match=r"add up to 1\.8"):
        simulate(scenario((0, SMALL), (0, SMALL)), Greedy("node1"))


def test_a_policy_that_places_nothing_is_found_out() -> None:
    class Idle(Watcher):
        def plan(self, snapshot: Snapshot, state: int) -> tuple[Plan, int]:
            return Plan(waiting={job.id: "no hurry" for job in snapshot.jobs}), state

    with pytest.raises(SimulationError, match="leaves jobs waiting"):
        simulate(scenario((0, SMALL)), Idle())


def test_reports_may_be_skipped_but_tiers_are_reached_at_the_same_times() -> None:
    every = scenario((0, steps(0.1, 0.2, 0.5, 0.6, 0.7, 0.8, 0.9)), (0.5, steps(0.1, 0.1, 0.1, 0.1, 0.6)))
    seldom = replace(every, reports_every=4)
    assert [times(job) for job in simulate(every, "fair").jobs] == [times(job) for job in simulate(seldom, "fair").jobs]
    watcher = Watcher("node1")
    simulate(replace(scenario((0, steps(0.1, 0.2, 0.5, 0.6, 0.7, 0.8, 0.9))), reports_every=3), watcher)
    seen = [snapshot.jobs[0].observations for snapshot in watcher.seen if snapshot.jobs]
    assert [report.epoch for report in seen[-1]] == [3, 6]


def test_a_job_that_is_sent_elsewhere_is_checkpointed_and_starts_up_again() -> None:
    long = steps(0.1, 0.2, 0.3, 0.5, 0.9)
    planned = replace(scenario((0, long), (3.25, SMALL), nodes=2), loop=LoopSettings(interval_seconds=2.5))
    mover, _ = simulate(planned, Watcher("node1", "node1", "node2")).jobs
    # 2.25 CPU seconds of training by 3.25 s, one second of checkpoint; the start-up again until 6.25 s on the new node,
    # beside the other job from 4.25 s on: half a core each, until that one has used its three CPU seconds.
    assert mover.nodes == ("node1", "node2")
    assert mover.migrations == 1
    # The other one is alone for 1 s and then needs 4 s for 2 s of CPU: until 8.25 s. The mover has trained 3.25 s then.
    assert times(mover) == [pytest.approx(8.25 + 0.75), pytest.approx(8.25 + 1.75)]
    assert mover.cpu_seconds == pytest.approx(7.0)


def test_jobs_stay_where_they_are_when_migration_is_off() -> None:
    planned = replace(
        scenario((0, steps(0.1, 0.2, 0.3, 0.5, 0.9)), (3.25, SMALL), nodes=2),
        machines=MachineSettings(migrations=False),
    )
    watcher = Watcher("node1", "node1", "node2")
    assert simulate(planned, watcher).migrations == 0
    assert not any(job.migratable for snapshot in watcher.seen for job in snapshot.jobs)


def test_a_node_is_shown_without_the_memory_that_a_leaving_job_still_holds() -> None:
    watcher = Watcher("node1", "node1", "node2")
    large = steps(0.1, 0.2, 0.3, 0.5, 0.9, memory_bytes=10 * GIB)
    planned = replace(
        scenario((0, large), (3.25, SMALL), (3.5, SMALL), nodes=2), loop=LoopSettings(interval_seconds=2.5)
    )
    simulate(planned, watcher)
    moving = next(snapshot for snapshot in watcher.seen if snapshot.now == 3.5)
    assert [node.memory_bytes // GIB for node in moving.nodes] == [54, 64]
    assert [job.node_id for job in moving.jobs][:2] == ["node2", "node2"]


def test_the_same_seed_gives_the_same_result_and_another_one_does_not() -> None:
    planned = replace(mixed_jobs(12, 2), record_usage=True)
    for policy in sorted(BUILT_IN):
        assert simulate(planned, policy, 3) == simulate(planned, policy, 3)
    assert simulate(planned, "fair", 3).jobs != simulate(planned, "fair", 4).jobs


def test_policies_are_compared_on_the_same_jobs() -> None:
    planned = mixed_jobs(24, 2)
    fair, tradl = simulate(planned, "fair", 5), simulate(planned, "tradl", 5)
    for left, right in zip(fair.jobs, tradl.jobs, strict=True):
        assert (left.arrived_at, left.workload) == (right.arrived_at, right.workload)
        assert [tier.true_work for tier in left.tiers] == [tier.true_work for tier in right.tiers]
    assert fair.mean_time_to_tier(1) != tradl.mean_time_to_tier(1)


def test_an_initial_placement_that_is_drawn_is_the_same_for_all_policies() -> None:
    planned = replace(mixed_jobs(24, 4), random_placement=True, machines=MachineSettings(migrations=False))
    homes = [[job.nodes for job in simulate(planned, policy, 2).jobs] for policy in ("fair", "tradl")]
    assert homes[0] == homes[1]
    balanced = [job.nodes for job in simulate(replace(planned, random_placement=False), "fair", 2).jobs]
    assert homes[0] != balanced


def test_what_a_job_used_over_time_can_be_kept() -> None:
    planned = replace(scenario((0, SMALL), (2, SMALL)), record_usage=True)
    first, second = simulate(planned, "fair").jobs
    weights = [(each.at, each.cores, each.weight) for each in first.usage]
    assert weights == [(0.0, 1.0, 1.0), (2.0, 0.5, 0.5), (4.0, 0.0, 0.0)]
    assert [(each.at, each.cores, each.node_id) for each in second.usage] == [
        (2.0, 0.5, "node1"),
        (4.0, 1.0, "node1"),
        (6.0, 0.0, "node1"),
    ]
    assert simulate(scenario((0, SMALL)), "fair").jobs[0].usage == ()


def test_a_late_delivery_is_no_standstill() -> None:
    planned = replace(scenario((0, SMALL)), machines=MachineSettings(delivery_seconds=50_000.0))
    (job,) = simulate(planned, "fair").jobs
    assert (job.state, job.finished_at) == (JobState.COMPLETED, 50_003.0)


def test_policies_see_what_a_run_has_used_by_now_even_between_reports() -> None:
    watcher = Watcher("node1")
    planned = replace(scenario((0, steps(0.9, startup=5.0))), loop=LoopSettings(interval_seconds=1.5))
    simulate(planned, watcher)
    seen = [(snapshot.now, snapshot.jobs[0].cpu_seconds) for snapshot in watcher.seen if snapshot.jobs]
    assert seen == [(0.0, 0.0), (1.5, 1.5), (4.5, 4.5)]
    seldom = Watcher("node1")
    simulate(replace(planned, machines=MachineSettings(usage_seconds=4.0)), seldom)
    seen = [(snapshot.now, snapshot.jobs[0].cpu_seconds) for snapshot in seldom.seen if snapshot.jobs]
    assert seen == [(0.0, 0.0), (1.5, 1.5), (4.5, 1.5)]
