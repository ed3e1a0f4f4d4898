"""Carrying out the actions leads to what is wanted, and then there is nothing left to do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tiercel.core.shares import AcceleratorShare
from tiercel.trainer_agent.limits.contract import CpuShare, Share
from tiercel.trainer_agent.runs.reconciler import (
    ActualRun,
    ApplyShare,
    DisownRun,
    ForgetRun,
    Phase,
    ReportRun,
    StartRun,
    StopRun,
    WantedRun,
    reconcile_runs,
)

RUN_IDS = st.sampled_from(["a-1", "a-2", "b-1", "c-1"])
HALF_OF_A = AcceleratorShare("GPU-a", 0.5)
SHARES = st.sampled_from(
    [Share(CpuShare(0.1)), Share(CpuShare(0.5, 1.0)), Share(CpuShare(1.0)), Share(CpuShare(1.0), (HALF_OF_A,))]
)
WANTED = st.dictionaries(RUN_IDS, st.builds(WantedRun, SHARES, st.booleans()))
ACTUAL = st.dictionaries(RUN_IDS, st.builds(ActualRun, st.sampled_from(Phase), SHARES))


def settle(wanted: dict[str, WantedRun], actual: dict[str, ActualRun]) -> dict[str, ActualRun]:
    """The runs after the actions were carried out and every run that is being stopped has ended."""
    after = dict(actual)
    for action in reconcile_runs(wanted, actual):
        match action:
            case StartRun(run_id):
                assert run_id not in actual
                after[run_id] = ActualRun(Phase.ALIVE, wanted[run_id].share)
            case StopRun(run_id):
                assert actual[run_id].phase is Phase.ALIVE
                after[run_id] = ActualRun(Phase.STOPPING, actual[run_id].share)
            case ApplyShare(run_id, share):
                after[run_id] = ActualRun(after[run_id].phase, share)
            case ForgetRun(run_id):
                del after[run_id]
    return {
        run_id: ActualRun(Phase.ENDED, None) if run.phase is Phase.STOPPING else run for run_id, run in after.items()
    }


@given(WANTED, ACTUAL)
def test_two_rounds_are_enough(wanted: dict[str, WantedRun], actual: dict[str, ActualRun]) -> None:
    settled = settle(wanted, settle(wanted, actual))
    rest = reconcile_runs(wanted, settled)
    assert all(isinstance(action, ReportRun | DisownRun) for action in rest)
    alive = {run_id: run.share for run_id, run in settled.items() if run.phase is Phase.ALIVE}
    ended_before = {run_id for run_id, run in actual.items() if run.phase is not Phase.ALIVE}
    assert alive == {
        run_id: want.share for run_id, want in wanted.items() if not want.stop and run_id not in ended_before
    }


@given(WANTED, ACTUAL)
def test_the_same_input_gives_the_same_actions(wanted: dict[str, WantedRun], actual: dict[str, ActualRun]) -> None:
    assert reconcile_runs(wanted, actual) == reconcile_runs(dict(wanted), dict(actual))
