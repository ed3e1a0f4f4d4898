"""Why a job has its share under TRADL-style scheduling, in one sentence that its tenant can read."""

from __future__ import annotations

from tiercel.broker.scheduling.tiers import next_tier
from tiercel.broker.scheduling.tradl.rank import Candidate
from tiercel.core.figures import number, percent


def sentence(candidate: Candidate, leaders: int, weight: float) -> str:
    """Why a job has its weight on a node where so many jobs go first."""
    share = f"{percent(weight)} of the node"
    record = candidate.memory.record
    if record.unreachable:
        return f"{record.unreachable}; {_kept_going(leaders, share)}"
    if candidate.leads:
        return _first_in_line(candidate, leaders, share)
    if record.reached >= len(candidate.job.tiers):
        return f"all its tiers are reached; {_kept_going(leaders, share)}"
    tiers = "tier 1 is reached" if record.reached == 1 else f"tiers 1 to {record.reached} are reached"
    return f"{tiers}, and jobs that have reached fewer go first; {_kept_going(leaders, share)}"


def _kept_going(leaders: int, share: str) -> str:
    if not leaders:
        return f"no job on this node is working towards a tier within reach, so all share alike: {share}"
    return f"goes on with {share}"


def _first_in_line(candidate: Candidate, leaders: int, share: str) -> str:
    tier, distance = next_tier(candidate.job), candidate.memory.distance
    if tier is None:
        return f"gets {share}"
    goal = f"tier-{tier.number} target {number(tier.tier.target)}"
    average = "counts as the average of the others and gets" if leaders > 1 else "gets"
    if distance is None:
        return f"first in line for its {goal}, no report yet; {average} {share}"
    gap = f"first in line: {distance.gap * distance.scale:.3g} from its {goal}"
    if distance.growth is None:
        return f"{gap}, too early to say how fast it improves; {average} {share}"
    if distance.growth <= 0:
        return f"{gap} and not improving at the moment; gets {share}"
    return f"{gap} and improving {distance.growth * distance.scale:.2g} per CPU-second; gets {share}"
