"""Why a job has its share under TRADL-style scheduling, in one sentence that its tenant can read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tiercel.broker.scheduling.ladder import next_tier
from tiercel.broker.scheduling.tradl_lead import Standing


def sentence(standing: Standing, all_on_node: Sequence[Standing], weights: Mapping[str, float]) -> str:
    """Why ``standing``'s job has its weight among all jobs of its node."""
    share = f"{weights[standing.job.id] * 100:.0f} % of the node"
    if standing.unreachable:
        return f"{standing.unreachable}; {_kept_going(all_on_node, share)}"
    if standing.leads:
        return _first_in_line(standing, all_on_node, share)
    if standing.curve is None:
        return f"all its tiers are reached; {_kept_going(all_on_node, share)}"
    tiers = "tier 1 is reached" if standing.reached == 1 else f"tiers 1 to {standing.reached} are reached"
    return f"{tiers}, and jobs that have reached fewer go first; {_kept_going(all_on_node, share)}"


def _kept_going(all_on_node: Sequence[Standing], share: str) -> str:
    if not any(other.leads for other in all_on_node):
        return f"no job on this node is working towards a tier within reach, so all share alike: {share}"
    return f"goes on with {share}"


def _first_in_line(standing: Standing, all_on_node: Sequence[Standing], share: str) -> str:
    tier, curve = next_tier(standing.job), standing.curve
    if tier is None or curve is None:
        return f"gets {share}"
    goal = f"tier-{tier.number} target {tier.tier.target:.4g}"
    if not curve.quality:
        return f"first in line for its {goal}, no report yet; {_average(standing, all_on_node)} {share}"
    gap = f"first in line: {curve.gap * curve.scale:.3g} from its {goal}"
    if standing.growth is None:
        return f"{gap}, too early to say how fast it improves; {_average(standing, all_on_node)} {share}"
    if standing.growth <= 0:
        return f"{gap} and not improving at the moment; gets {share}"
    return f"{gap} and improving {standing.growth * curve.scale:.2g} per CPU-second; gets {share}"


def _average(standing: Standing, all_on_node: Sequence[Standing]) -> str:
    others = [other for other in all_on_node if other.leads and other.job.id != standing.job.id]
    return "counts as the average of the others and gets" if others else "gets"
