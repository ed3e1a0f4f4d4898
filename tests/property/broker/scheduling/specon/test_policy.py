"""What SpeCon-style migrations keep, whatever the jobs do: a cluster is played for a few minutes of made-up time."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testing.scheduling import GIB, job, node
from tiercel.broker.scheduling.interface import Assignment, JobView, Plan, Snapshot, Trigger
from tiercel.broker.scheduling.specon.migration import SpeconRule
from tiercel.broker.scheduling.specon.policy import SpeconPolicy, SpeconSettings
from tiercel.broker.scheduling.validation import check_plan
from tiercel.core.jobs import Observation

STEP_SECONDS = 10.0
STEPS = 40
OFTEN = SpeconSettings(max_migrations=0, cooldown_seconds=60.0, interval=0.0)
VARIANTS = [
    SpeconSettings(),
    OFTEN,
    dataclasses.replace(OFTEN, rule=SpeconRule.LOAD),
    dataclasses.replace(OFTEN, cooldown_seconds=0.0),
]


@dataclasses.dataclass(frozen=True)
class Played:
    """One pass: what the policy saw, and what it planned."""

    snapshot: Snapshot
    plan: Plan

    @property
    def migrations(self) -> list[Assignment]:
        """Jobs that were sent elsewhere."""
        at = {one.id: one.node_id for one in self.snapshot.jobs}
        return [entry for entry in self.plan.assignments if entry.node_id != at[entry.job_id]]


def play(policy: SpeconPolicy, seed: int, counts: list[int], *, shuffled: bool = False) -> Iterator[Played]:
    """Jobs that learn in bursts, on as many nodes as there are counts."""
    lots = random.Random(seed)
    nodes = tuple(node(f"n{number}", memory_bytes=8 * GIB) for number in range(len(counts)))
    homes = [home.id for home, count in zip(nodes, counts, strict=True) for _ in range(count)]
    jobs = {f"j{number:02}": job(f"j{number:02}", node_id=home) for number, home in enumerate(homes)}
    values = dict.fromkeys(jobs, 0.0)
    state = policy.initial_state()
    order = list(jobs)
    for step in range(STEPS):
        now = step * STEP_SECONDS
        for name, view in jobs.items():
            values[name] += lots.choice([0.0, 0.001, 0.1])
            seen = Observation(now, step, values[name], now)
            migratable = lots.random() < 0.8
            jobs[name] = dataclasses.replace(view, observations=(*view.observations, seen), migratable=migratable)
        if shuffled:
            random.Random(step).shuffle(order)
        seen_jobs = tuple(jobs[name] for name in order)
        snapshot = Snapshot(now, Trigger.INTERVAL, seen_jobs, nodes[::-1] if shuffled else nodes)
        plan, state = policy.plan(snapshot, state)
        yield Played(snapshot, plan)
        jobs.update({entry.job_id: _moved(jobs[entry.job_id], entry.node_id, now) for entry in plan.assignments})


def _moved(view: JobView, node_id: str, now: float) -> JobView:
    if view.node_id == node_id:
        return view
    return dataclasses.replace(view, node_id=node_id, migrations=view.migrations + 1, migrated_at=now)


crowds = st.lists(st.integers(0, 7), min_size=1, max_size=4)
seeds = st.integers(0, 10_000)
few = settings(max_examples=10, deadline=None)
every_variant = pytest.mark.parametrize("variant", VARIANTS)


@every_variant
@given(seed=seeds, counts=crowds)
@few
def test_one_job_moves_a_round_and_only_one_that_may(variant: SpeconSettings, seed: int, counts: list[int]) -> None:
    last_move = None
    for played in play(SpeconPolicy(variant), seed, counts):
        assert check_plan(played.plan, played.snapshot) == []
        assert len(played.migrations) <= 1
        for migration in played.migrations:
            now = played.snapshot.now
            assert last_move is None or now - last_move >= variant.round_seconds
            assert next(one for one in played.snapshot.jobs if one.id == migration.job_id).migratable
            assert migration.share.reason.startswith("moved from ")
            last_move = now


@every_variant
@given(seed=seeds, counts=crowds)
@few
def test_no_job_is_thrown_back_and_forth(variant: SpeconSettings, seed: int, counts: list[int]) -> None:
    times: dict[str, list[float]] = {}
    for played in play(SpeconPolicy(variant), seed, counts):
        for migration in played.migrations:
            times.setdefault(migration.job_id, []).append(played.snapshot.now)
    for moments in times.values():
        assert len(moments) <= (variant.max_migrations or STEPS)
        pauses = [later - earlier for earlier, later in itertools.pairwise(moments)]
        assert all(pause >= variant.cooldown_seconds for pause in pauses)


@pytest.mark.parametrize("rule", SpeconRule)
@given(seed=seeds, counts=crowds)
@few
def test_while_nobody_learns_differently_the_moves_come_to_an_end(
    rule: SpeconRule, seed: int, counts: list[int]
) -> None:
    """Without any cool-down and bound: the rule alone must not send jobs in circles."""
    variant = dataclasses.replace(OFTEN, cooldown_seconds=0.0, round_seconds=0.0, rule=rule, alpha=0.5)
    policy = SpeconPolicy(variant)
    state = policy.initial_state()
    *_, last = play(policy, seed, counts)
    jobs = {one.id: dataclasses.replace(one, migratable=True) for one in last.snapshot.jobs}
    _, state = policy.plan(dataclasses.replace(last.snapshot, jobs=tuple(jobs.values())), state)
    for _ in range(len(jobs) + 1):
        snapshot = dataclasses.replace(last.snapshot, jobs=tuple(jobs.values()))
        plan, state = policy.plan(snapshot, state)
        migrations = Played(snapshot, plan).migrations
        if not migrations:
            return
        jobs.update(
            {
                migration.job_id: dataclasses.replace(jobs[migration.job_id], node_id=migration.node_id)
                for migration in migrations
            }
        )
    pytest.fail("jobs go on moving although nothing changes")


@every_variant
@given(seed=seeds, counts=crowds)
@few
def test_the_order_of_jobs_and_nodes_does_not_matter(variant: SpeconSettings, seed: int, counts: list[int]) -> None:
    plans = [played.plan for played in play(SpeconPolicy(variant), seed, counts)]
    assert plans == [played.plan for played in play(SpeconPolicy(variant), seed, counts, shuffled=True)]
