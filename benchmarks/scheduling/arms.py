"""Arms: a policy with its options and the kernel's time slices, as one of the things that are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tiercel.broker.scheduling.options import Option
from tiercel.broker.scheduling.registry import create_policy
from tiercel.core.errors import InvalidSpecError
from tiercel.trainer_agent.settings import AgentSettings

LONG_SLICE_SECONDS = 0.1
PRODUCT_SLICE_SECONDS: float = AgentSettings.model_fields["time_slice_seconds"].default

FLOWCON: Mapping[str, Option] = MappingProxyType({"interval": 3.0, "alpha": 0.1})
"""FlowCon's defaults are for jobs of minutes. A trial chose these for jobs of seconds (its alpha has a unit)."""

SPECON: Mapping[str, Option] = MappingProxyType(
    {"interval": 1.0, "round_seconds": 3.0, "cooldown_seconds": 12.0, "migration_seconds": 3.0}
)
"""SpeCon's times, for jobs of seconds instead of minutes; what a move costs is about a start-up."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to schedule."""

    name: str  # unique among arms
    policy: str  # name in the registry
    about: str  # what it is, for people
    options: Mapping[str, Option] = field(default_factory=lambda: MappingProxyType({}))  # of the policy
    # What training processes ask the kernel for; 0 for the kernel's own choice.
    time_slice_seconds: float = LONG_SLICE_SECONDS
    knows_past: bool = False  # whether the broker remembers runs of the same kinds with other training seeds
    knows_future: bool = False  # whether the policy is told the recorded CPU seconds to each tier of the very same runs


_ALL = (
    Arm("fair", "fair", "equal weights, as Docker gives by default", time_slice_seconds=0.0),
    # Nothing of earlier runs decides under fair and fifo; what-ifs are asked of them as of the others.
    Arm("fair-slices", "fair", "equal weights and 100 ms slices: the honest baseline", knows_past=True),
    Arm("utility", "utility", "ours, nothing known of earlier runs"),
    Arm("utility-history", "utility", "ours, with earlier runs of the same kinds (other seeds)", knows_past=True),
    Arm("fifo", "fifo", "a few at a time in the order of arrival, tier 1 first", knows_past=True),
    Arm("srpt-history", "srpt", "least work left to the next tier first, by the same earlier runs", knows_past=True),
    Arm("tradl", "tradl", "TRADL-style: the first tier first, the others at a floor"),
    Arm("las", "las", "least attained service first"),
    Arm("slaq", "slaq", "SLAQ-style: where the metric is predicted to gain most"),
    Arm("flowcon", "flowcon", "FlowCon, work-conserving, its interval scaled to these jobs", FLOWCON),
    Arm("flowcon-literal", "flowcon", "FlowCon with hard caps, as published", {**FLOWCON, "mode": "literal"}),
    Arm("specon", "specon", "SpeCon-style: slow learners leave fast ones, its times scaled to these jobs", SPECON),
    Arm("dqoes", "dqoes", "DQoES-style: endpoints by their delay objectives, training equal"),
    Arm("srpt-oracle", "srpt-oracle", "knows the true work of each tier: what no one can have", knows_future=True),
    Arm("utility-plain-slices", "utility", "ours, with the kernel's own slices", time_slice_seconds=0.0),
    Arm("utility-product-slices", "utility", "ours, as it ships", time_slice_seconds=PRODUCT_SLICE_SECONDS),
    Arm("random-order", "random-order", "a few at a time in random order, tier 1 first"),
)

ARMS: Mapping[str, Arm] = MappingProxyType({arm.name: arm for arm in _ALL})
"""All arms by name. All have the same long slices but ``fair`` and those that are named for their slices."""

OURS = ("utility", "utility-history")
"""What the others are compared with."""

CORE = ("fair", "fair-slices", "utility", "utility-history", "fifo", "srpt-history", "srpt-oracle")
"""Run in most blocks."""

WIDE = (*CORE, "tradl", "las", "slaq", "flowcon")
"""Run where everything is to be compared."""

TWO_NODES = ("fair", "fair-slices", "fifo", "specon", "srpt-history", *OURS)
"""Run where jobs may move from one node to another."""

QUICK = ("fair", "fifo", "utility")
"""Run for a sanity check; those that are missing are left out."""


def why_missing(arm: Arm) -> str:
    """Why an arm cannot run with this version of Tiercel; empty when it can."""
    options = dict(arm.options)
    if arm.knows_future:
        # Its works are made for each schedule; here any will do.
        options |= oracle_options({})
    try:
        create_policy(arm.policy, options)
    except InvalidSpecError as error:
        return error.message
    return ""


def oracle_options(works: Mapping[str, tuple[float, ...]]) -> dict[str, Option]:
    """The option that tells an oracle the future.

    Args:
        works: CPU seconds from the start at which each tier is reached, by the job's name.
    """
    return {"works": ";".join(f"{name}:{'/'.join(f'{each:g}' for each in work)}" for name, work in works.items())}
