"""Wanted and actual runs in, what to do out: pure, so that it can be tested in full and repeated at will.

What is not wanted is stopped and forgotten. What has ended is only reported again, never started a second time.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from tiercel.trainer_agent.limits.contract import Share


class Phase(enum.Enum):
    """Where a run is."""

    ALIVE = "alive"
    STOPPING = "stopping"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class WantedRun:
    """What the broker wants of a run."""

    share: Share  # what it may use
    stop: bool = False  # whether it shall end
    transfer: bool = False  # whether it then goes on elsewhere, from its checkpoint
    finish: bool = False  # whether its training shall end as it would after its last epoch


@dataclass(frozen=True, slots=True)
class ActualRun:
    """What is of a run."""

    phase: Phase  # where it is
    share: Share | None  # what it may use, or None where that is over
    finishing: bool = False  # whether it was told, in this life of the agent, to end its training


@dataclass(frozen=True, slots=True)
class StartRun:
    """Start a run that is not there."""

    run_id: str


@dataclass(frozen=True, slots=True)
class StopRun:
    """Ask a run to end, and end it if it does not; ``transfer``: then send its checkpoint to the broker.

    ``wanted`` is False when the broker does not ask for that but knows the run no more: its job may go on elsewhere.
    """

    run_id: str
    reason: str
    transfer: bool = False
    wanted: bool = True


@dataclass(frozen=True, slots=True)
class FinishRun:
    """Ask a run to end its training as it would after its last epoch."""

    run_id: str


@dataclass(frozen=True, slots=True)
class ApplyShare:
    """Let a run have another share."""

    run_id: str
    share: Share


@dataclass(frozen=True, slots=True)
class ReportRun:
    """Say again how a run ended."""

    run_id: str


@dataclass(frozen=True, slots=True)
class DisownRun:
    """Say that a run which shall stop does not exist here."""

    run_id: str


@dataclass(frozen=True, slots=True)
class ForgetRun:
    """Drop what is kept of a run that has ended."""

    run_id: str


RunAction = StartRun | StopRun | FinishRun | ApplyShare | ReportRun | DisownRun | ForgetRun


def reconcile_runs(wanted: Mapping[str, WantedRun], actual: Mapping[str, ActualRun]) -> list[RunAction]:
    """What to do so that the runs become what is wanted.

    Stops come before starts, so that what is freed is free.
    """
    actions: list[RunAction] = []
    for run_id, run in actual.items():
        if run_id not in wanted:
            actions += _unwanted(run_id, run)
    for run_id, want in wanted.items():
        is_there = actual.get(run_id)
        if is_there is not None:
            actions += _known(run_id, want, is_there)
        elif want.stop:
            actions.append(DisownRun(run_id))
        else:
            actions.append(StartRun(run_id))
    return actions


def _unwanted(run_id: str, run: ActualRun) -> list[RunAction]:
    if run.phase is Phase.ENDED:
        return [ForgetRun(run_id)]
    if run.phase is Phase.STOPPING:
        return []  # forgotten by the wanted state that comes after its end
    return [StopRun(run_id, "the broker no longer wants it", wanted=False)]


def _known(run_id: str, want: WantedRun, run: ActualRun) -> list[RunAction]:
    if run.phase is Phase.ENDED:
        return [ReportRun(run_id)]
    if run.phase is Phase.STOPPING:
        return []
    if want.stop:
        reason = "its job goes on as another run" if want.transfer else "the broker asked it to stop"
        return [StopRun(run_id, reason, want.transfer)]
    actions: list[RunAction] = [ApplyShare(run_id, want.share)] if want.share != run.share else []
    return [*actions, FinishRun(run_id)] if want.finish and not run.finishing else actions
