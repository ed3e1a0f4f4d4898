"""What endpoints may use beside training: weights made into caps, since serving is not in training's group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tiercel.trainer_agent.limits.contract import CpuShare


@dataclass(frozen=True, slots=True)
class EndpointTerms:
    """What the inference server is told as a whole."""

    # What endpoints may use, by name; those not named are not limited.
    shares: Mapping[str, CpuShare] = field(default_factory=dict)
    # Seconds that answers may take, by endpoint; those not named have no objective.
    objectives: Mapping[str, float] = field(default_factory=dict)


def beside_training(
    shares: Mapping[str, CpuShare], training_cores: Iterable[float], node_cores: float
) -> dict[str, CpuShare]:
    """The shares that the inference server is told.

    It is protected from training, so that nothing but a cap makes it leave training its part: while jobs run, an
    endpoint with a weight but no cap is held to its part of the node, or to the cores that no job can use if those are
    more. Without jobs nothing is left unused for anybody.
    """
    training = min(sum(training_cores), node_cores)
    if training <= 0:
        return dict(shares)
    return {name: _held(share, node_cores - training, node_cores) for name, share in shares.items()}


def _held(share: CpuShare, free_cores: float, node_cores: float) -> CpuShare:
    cap = max(share.weight * node_cores, free_cores)
    return share if share.cap_cores is not None or cap >= node_cores else CpuShare(share.weight, cap)
