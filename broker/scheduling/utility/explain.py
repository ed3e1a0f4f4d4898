"""Step "explain" of the utility policy: why a job has its share, in one sentence that its tenant can read."""

from __future__ import annotations

from tiercel.broker.scheduling.utility.candidate import Candidate


def sentence(candidate: Candidate, position: int, ahead: int, weight: float) -> str:
    """Why a job has its weight.

    Args:
        candidate: The job.
        position: Jobs before it in the queue.
        ahead: Jobs that run in front.
        weight: Its weight.
    """
    if candidate.is_hopeless:
        return f"{candidate.record.unreachable}; goes on with {weight:.1%} of the node until it makes progress"
    what = _forecast(candidate)
    if candidate.is_late and position < ahead:
        return f"goes first so that it is not over later than it should be: {what}; {weight:.0%} of the node"
    if position < ahead and candidate.delivering is not None:
        return f"hands over the model of its tier {candidate.delivering.number} now; {weight:.0%} of the node"
    if position < ahead:
        return f"runs now, worth most per {_scarce(candidate)}: {what}; {weight:.0%} of the node"
    others = f"{position} other{'s' if position > 1 else ''}"
    return f"its turn comes after {others}: {what}; {weight:.2%} of the node till then"


def _scarce(candidate: Candidate) -> str:
    """What the job competes for."""
    needs = candidate.needs
    held_up_by_accelerator = needs is not None and needs.fraction > needs.cores / candidate.job.resources.cpu_cores
    return "second of its accelerators" if held_up_by_accelerator else "CPU second"


def _forecast(candidate: Candidate) -> str:
    if candidate.status is None:
        return f"all its tiers are reached, over after about {_seconds(candidate.record.to_end)} more of CPU time"
    if candidate.is_worth_finishing:
        return f"nearly over, after about {_seconds(candidate.record.to_end)} more of CPU time"
    remaining = candidate.record.remaining
    if candidate.record.known is None:
        used = _seconds(candidate.record.spent)
        return f"tier {candidate.status.number}, of which no earlier run tells; {used} of CPU time used so far"
    span = f"{_seconds(remaining.low)} to {_seconds(remaining.high)}"
    doubt = f", if ever ({1 - remaining.never:.0%})" if remaining.never >= 0.05 else ""
    asked = f"; to those who ask its endpoint worth {candidate.traffic_value:.2g} more" if candidate.is_asked else ""
    by = "going by earlier runs of the same program"
    return f"tier {candidate.status.number} in about {span} of CPU time{doubt}, {by}{asked}"


def _seconds(value: float) -> str:
    if value < 120:
        return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.0f} h"
