"""Finds out what this machine lets us enforce shares with."""

from __future__ import annotations

import logging
from pathlib import Path

from tiercel.trainer_agent.limits import groups
from tiercel.trainer_agent.limits.cgroup_v1 import CgroupV1
from tiercel.trainer_agent.limits.cgroup_v2 import CgroupV2
from tiercel.trainer_agent.limits.contract import CpuShare, Limits
from tiercel.trainer_agent.limits.cooperative import Cooperative
from tiercel.trainer_agent.limits.cpu import groups_of

_log = logging.getLogger(__name__)

_PROBE = "probe"


def detect(
    node_id: str,
    cpu_cores: float,
    training_weight: float = groups.ORDINARY_TRAINING_WEIGHT,
    root: Path = Path("/sys/fs/cgroup"),
) -> Limits:
    """The strongest way that really works: cgroup v2, else v1, else cooperative pacing.

    Works means that a group was made, limited and removed just now.

    Args:
        node_id: Names the groups.
        cpu_cores: Cores of the node.
        training_weight: What all training weighs for each core, where an ordinary process has 1.
        root: Where control groups are mounted.
    """
    mine = groups_of()
    weights = groups.group_weights(cpu_cores, training_weight)
    for kind in (CgroupV2, CgroupV1):
        limits: Limits | None = None
        try:
            limits = kind(node_id, weights, mine, root)
            limits.open_run(_PROBE, cpu_cores=1.0, memory_bytes=1 << 30, share=CpuShare(0.5, 0.5)).close()
        except (OSError, groups.LimitsUnavailableError) as error:
            _log.info("%s is not used: %s", kind.name, error)
            if limits is not None:
                limits.close()
        else:
            return limits
    return Cooperative(cpu_cores)
