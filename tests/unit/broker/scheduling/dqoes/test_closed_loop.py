"""DQoES-style scheduling against services whose delay is their work over the CPU they get (Mao et al., 2020)."""

from __future__ import annotations

import random
from dataclasses import dataclass
from statistics import mean

import pytest

from testing.scheduling import node
from tiercel.broker.scheduling.allocate import Claim, divide
from tiercel.broker.scheduling.dqoes.policy import DqoesPolicy, DqoesSettings, DqoesState
from tiercel.broker.scheduling.dqoes.rule import DqoesMode
from tiercel.broker.scheduling.interface import EndpointView, Snapshot, Trigger
from tiercel.core.shares import Share

SERVICES = 10
# CPU seconds of the whole node that one answer takes: 30 s where ten of them share it equally.
WORK = 3.0
PASSES = 200
SEEDS = range(5)


@dataclass(frozen=True)
class Look:
    """What was seen at one snapshot: how many services are satisfied, and how many are fast enough."""

    satisfied: int
    fast_enough: int
    cpu: dict[str, float]


def shared_out(shares: dict[str, Share | None]) -> dict[str, float]:
    """The CPU that services which always have work get: up to their cap, in proportion to their weights."""
    claims = {
        name: Claim(1 / len(shares), 0.0) if share is None else Claim(share.cpu_weight, 0.0, share.cpu_weight)
        for name, share in shares.items()
    }
    return divide(claims, 1.0)


def run(
    objectives: list[float], policy: DqoesPolicy | None, seed: int, arrivals: list[float] | None = None
) -> list[Look]:
    """One node for 200 snapshots, 10 s apart; the services come at ``arrivals``, else at the start."""
    noise = random.Random(seed)
    state = DqoesState()
    shares: dict[str, Share | None] = {}
    looks = []
    for index in range(PASSES):
        now = 10.0 * index
        there = [n for n in range(len(objectives)) if arrivals is None or arrivals[n] <= now]
        names = [f"s{n}" for n in there]
        shares = {name: shares.get(name) for name in names}
        if not names:
            continue
        cpu = shared_out(shares)
        views = []
        for n, name in zip(there, names, strict=True):
            delay = WORK / cpu[name] * noise.gauss(1, 0.02)
            views.append(
                EndpointView(name, "t", "node", 1.0, objectives[n], 1 / delay, delay, cpu[name], None, shares[name])
            )
        looks.append(look(views))
        if policy:
            snapshot = Snapshot(now, Trigger.INTERVAL, (), (node(cpu_cores=1.0),), tuple(views))
            plan, state = policy.plan(snapshot, state)
            assert sum(share.cpu_weight for share in plan.endpoint_shares.values()) <= 1 + 1e-9
            shares = {name: plan.endpoint_shares.get(name) for name in names}
    return looks


def look(views: list[EndpointView]) -> Look:
    late = {v.name: (v.delay_seconds or 0.0) / (v.objective_seconds or 1.0) for v in views}
    return Look(
        sum(0.9 <= value <= 1.1 for value in late.values()),
        sum(value <= 1.1 for value in late.values()),
        {v.name: v.cpu_cores_used for v in views},
    )


def at_the_end(looks: list[Look]) -> float:
    """Services satisfied, on the average of the last 40 % of the run."""
    return mean(each.satisfied for each in looks[int(0.6 * len(looks)) :])


def varied(seed: int, load: float = 0.95) -> list[float]:
    """Objectives up to ten times apart, such that meeting all of them exactly takes ``load`` of the node."""
    chance = random.Random(f"objectives {seed}")
    raw = [10 ** chance.uniform(0.0, 1.0) for _ in range(SERVICES)]
    return [objective * sum(WORK / other for other in raw) / load for objective in raw]


@pytest.mark.parametrize("mode", DqoesMode)
@pytest.mark.parametrize("seed", SEEDS)
def test_identical_objectives_within_reach_are_met(mode: DqoesMode, seed: int) -> None:
    policy = DqoesPolicy(DqoesSettings(mode=mode))
    assert at_the_end(run([40.0] * SERVICES, policy, seed)) >= 9.0
    assert at_the_end(run([40.0] * SERVICES, None, seed)) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_identical_objectives_out_of_reach_leave_equal_shares_at_rest(seed: int) -> None:
    looks = run([20.0] * SERVICES, DqoesPolicy(), seed)
    last = looks[int(0.6 * len(looks)) :]
    assert {each.satisfied for each in last} == {0}
    shares = [share for each in last for share in each.cpu.values()]
    assert min(shares) > 0.09
    assert max(shares) < 0.11


@pytest.mark.parametrize("mode", DqoesMode)
@pytest.mark.parametrize("arrival", ["burst", "fixed", "random"])
def test_varied_objectives_are_met_by_most(arrival: str, mode: DqoesMode) -> None:
    kept, baseline, fast = [], [], []
    for seed in range(10):
        chance = random.Random(f"arrivals {seed}")
        arrivals = {
            "burst": [0.0] * SERVICES,
            "fixed": [50.0 * n for n in range(SERVICES)],
            "random": [chance.uniform(0, 300) for _ in range(SERVICES)],
        }[arrival]
        looks = run(varied(seed), DqoesPolicy(DqoesSettings(mode=mode)), seed, arrivals)
        kept.append(at_the_end(looks))
        fast.append(mean(each.fast_enough for each in looks[int(0.6 * len(looks)) :]))
        baseline.append(at_the_end(run(varied(seed), None, seed, arrivals)))
    assert mean(kept) >= 7
    assert mean(fast) >= 7
    assert mean(baseline) <= 1
