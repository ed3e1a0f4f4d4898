"""What may be promised, by what-ifs that are answered in this process."""

from __future__ import annotations

import asyncio

import pytest

from testing.actors import ALICE
from testing.clock import ManualClock
from testing.jobs import make_spec
from tiercel.broker.actors.hard_deadlines import HardDeadlines
from tiercel.broker.scheduling.interface import CurvePoint, JobView, NodeView, PastRun, Snapshot, Trigger
from tiercel.broker.what_if.answer import answer
from tiercel.broker.what_if.present import Present, Question, bounded
from tiercel.core.errors import DeadlineOutOfReachError
from tiercel.core.jobs import Direction, JobSpec, Resources, Tier, TierStatus
from tiercel.core.run_records import workload_of
from tiercel.core.what_if import Changes, WhatIf

GIB = 1024**3
# 20 CPU seconds to 0.8, 40 to 0.9.
CURVE = PastRun(
    tuple(CurvePoint(2.0 * number, min(0.6 + 0.02 * number, 0.7 + 0.0101 * number)) for number in range(1, 26))
)


class Foretelling:
    """Stands for :class:`.Predictions`, without a child process and a store."""

    def __init__(self, *jobs: JobView, now: float) -> None:
        workload = workload_of("alice", spec(1.0))
        history = {"digits": (CURVE,) * 3, workload: (CURVE,) * 3}
        nodes = (NodeView("n1", 1.0, 64 * GIB),)
        self._present = Present(Snapshot(now, Trigger.INTERVAL, jobs, nodes, (), history), "fair", {}, 1.0)
        self.asked = 0

    def present(self) -> Present:
        return self._present

    async def foresee(self, present: Present, wanted: frozenset[str], *, asker: str) -> WhatIf:
        assert asker
        self.asked += 1
        await asyncio.sleep(0)
        return answer(Question(bounded(present, wanted), Changes()))


def spec(seconds: float, **changes: object) -> JobSpec:
    tiers = (Tier(0.8), Tier(0.9, deadline_seconds=seconds, hard=True))
    return make_spec(**{"tiers": tiers, "resources": Resources(1.0, GIB), "endpoint": "new", **changes})


def promised(seconds: float, now: float, *, hard: bool = True) -> JobView:
    """A job that was submitted just now, and needs about 40 s alone."""
    tiers = (TierStatus(1, Tier(0.8)), TierStatus(2, Tier(0.9, deadline_seconds=seconds, hard=hard)))
    resources = Resources(1.0, GIB)
    return JobView("a", "bob", now, Direction.MAX, tiers, resources, workload="digits", max_epochs=40, endpoint="a")


async def words_of(foretelling: Foretelling, of: JobSpec) -> str:
    clock = ManualClock()
    async with HardDeadlines(foretelling, clock).checked(ALICE, of) as words:  # type: ignore[arg-type]
        return words


async def test_who_asks_for_no_promise_is_not_judged() -> None:
    foretelling = Foretelling(now=ManualClock().now())
    assert await words_of(foretelling, make_spec(tiers=(Tier(0.9, deadline_seconds=0.001),))) == ""
    assert foretelling.asked == 0


async def test_alone_what_earlier_runs_needed_is_promised_and_no_less() -> None:
    foretelling = Foretelling(now=ManualClock().now())
    assert (await words_of(foretelling, spec(120.0))).endswith("in time for its deadline after 2m")
    with pytest.raises(DeadlineOutOfReachError, match="wanted after 30s at the latest"):
        await words_of(foretelling, spec(30.0))
    with pytest.raises(DeadlineOutOfReachError, match="no earlier run"):
        await words_of(foretelling, spec(1e6, module="another.program"))
    never = spec(1e6, tiers=(Tier(0.8), Tier(2.0, deadline_seconds=1e6, hard=True)))
    with pytest.raises(DeadlineOutOfReachError, match=r"tiers\[1\].hard: no earlier run .* has reached 2,"):
        await words_of(foretelling, never)


async def test_what_others_were_promised_is_kept() -> None:
    now = ManualClock().now()
    with pytest.raises(DeadlineOutOfReachError, match="that another job was admitted with would be missed"):
        await words_of(Foretelling(promised(65.0, now), now=now), spec(1e6))
    assert await words_of(Foretelling(promised(600.0, now), now=now), spec(1e6))
    assert await words_of(Foretelling(promised(65.0, now, hard=False), now=now), spec(1e6)), "was not promised"
    assert await words_of(Foretelling(promised(1.0, now), now=now), spec(1e6)), "is lost in any case"


async def test_two_at_once_are_judged_one_after_the_other() -> None:
    foretelling = Foretelling(now=ManualClock().now())
    deadlines = HardDeadlines(foretelling, ManualClock())  # type: ignore[arg-type]
    within: list[str] = []

    async def submit(name: str) -> None:
        async with deadlines.checked(ALICE, spec(1e6)):
            within.append(name)
            await asyncio.sleep(0.01)
            assert within[-1] == name, "nobody else came in"

    await asyncio.gather(*(submit(name) for name in "abc"))
    assert sorted(within) == ["a", "b", "c"]
