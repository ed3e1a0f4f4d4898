from __future__ import annotations

import pytest

from tiercel.core.shares import AcceleratorShare
from tiercel.trainer_agent.limits.contract import CpuShare, Share
from tiercel.trainer_agent.runs.reconciler import (
    ActualRun,
    ApplyShare,
    DisownRun,
    FinishRun,
    ForgetRun,
    Phase,
    ReportRun,
    RunAction,
    StartRun,
    StopRun,
    WantedRun,
    reconcile_runs,
)

HALF, FULL, CAPPED = Share(CpuShare(0.5)), Share(CpuShare(1.0)), Share(CpuShare(0.5, 1.0))
HALF_OF_A = Share(CpuShare(0.5), (AcceleratorShare("GPU-a", 0.5),))
STOP = StopRun("a-1", "the broker asked it to stop")
TRANSFER = StopRun("a-1", "its job goes on as another run", transfer=True)
DROP = StopRun("a-1", "the broker no longer wants it", wanted=False)


@pytest.mark.parametrize(
    ("wanted", "actual", "actions"),
    [
        (None, None, []),
        (WantedRun(HALF), None, [StartRun("a-1")]),
        (WantedRun(HALF, stop=True), None, [DisownRun("a-1")]),
        (WantedRun(HALF), ActualRun(Phase.ALIVE, HALF), []),
        (WantedRun(FULL), ActualRun(Phase.ALIVE, HALF), [ApplyShare("a-1", FULL)]),
        (WantedRun(CAPPED), ActualRun(Phase.ALIVE, HALF), [ApplyShare("a-1", CAPPED)]),
        (WantedRun(HALF_OF_A), ActualRun(Phase.ALIVE, HALF), [ApplyShare("a-1", HALF_OF_A)]),
        (WantedRun(HALF, finish=True), ActualRun(Phase.ALIVE, HALF), [FinishRun("a-1")]),
        (WantedRun(HALF, finish=True), ActualRun(Phase.ALIVE, HALF, finishing=True), []),
        (WantedRun(FULL, finish=True), ActualRun(Phase.ALIVE, None), [ApplyShare("a-1", FULL), FinishRun("a-1")]),
        (WantedRun(HALF, stop=True, finish=True), ActualRun(Phase.ALIVE, HALF, finishing=True), [STOP]),
        (WantedRun(HALF, stop=True), ActualRun(Phase.ALIVE, HALF), [STOP]),
        (WantedRun(HALF, stop=True, transfer=True), ActualRun(Phase.ALIVE, HALF), [TRANSFER]),
        (WantedRun(HALF, stop=True, transfer=True), ActualRun(Phase.STOPPING, HALF), []),
        (WantedRun(FULL, stop=True), ActualRun(Phase.STOPPING, HALF), []),
        (WantedRun(FULL), ActualRun(Phase.STOPPING, HALF), []),
        (WantedRun(HALF), ActualRun(Phase.ENDED, None), [ReportRun("a-1")]),
        (WantedRun(HALF, stop=True), ActualRun(Phase.ENDED, None), [ReportRun("a-1")]),
        (None, ActualRun(Phase.ALIVE, HALF), [DROP]),
        (None, ActualRun(Phase.STOPPING, HALF), []),
        (None, ActualRun(Phase.ENDED, None), [ForgetRun("a-1")]),
    ],
)
def test_one_run(wanted: WantedRun | None, actual: ActualRun | None, actions: list[RunAction]) -> None:
    assert reconcile_runs({"a-1": wanted} if wanted else {}, {"a-1": actual} if actual else {}) == actions


def test_stops_come_before_starts() -> None:
    actions = reconcile_runs({"b-1": WantedRun(FULL)}, {"a-1": ActualRun(Phase.ALIVE, FULL)})
    assert actions == [DROP, StartRun("b-1")]


def test_runs_do_not_mix() -> None:
    wanted = {"a-1": WantedRun(FULL), "b-1": WantedRun(HALF)}
    actual = {"b-1": ActualRun(Phase.ALIVE, HALF), "a-1": ActualRun(Phase.ALIVE, HALF)}
    assert reconcile_runs(wanted, actual) == [ApplyShare("a-1", FULL)]
