"""Finds out which accelerators this machine lets us use."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from tiercel.core.errors import SetupError
from tiercel.trainer_agent.accelerators import nvml
from tiercel.trainer_agent.accelerators.contract import Accelerators, AcceleratorsUnavailableError
from tiercel.trainer_agent.accelerators.none import NoAccelerators
from tiercel.trainer_agent.accelerators.nvidia import NvidiaAccelerators
from tiercel.trainer_agent.accelerators.nvml import Nvml

_log = logging.getLogger(__name__)

AUTO: Final = "auto"
NONE: Final = "none"


def detect(wanted: str = AUTO, load: Callable[[], Nvml] = nvml.load) -> Accelerators:
    """The accelerators to use. Blocks for as long as the driver likes.

    Args:
        wanted: ``auto`` for all there are, ``none``, or ids of accelerators with commas in between.
        load: Loads NVIDIA's management library.

    Raises:
        SetupError: An accelerator that is named is not there.
    """
    if wanted == NONE:
        return NoAccelerators()
    only = () if wanted == AUTO else tuple(wanted.split(","))
    try:
        found = NvidiaAccelerators(load(), only)
    except AcceleratorsUnavailableError as error:
        if only:
            raise SetupError(
                f"The agent cannot use the accelerators that --accelerators names: {error}. Name accelerators as "
                "nvidia-smi -L does, or give auto or none."
            ) from error
        _log.info("no accelerator: %s", error)
        return NoAccelerators()
    for accelerator in found.listed:
        _log.info("accelerator %s: %s, %.1f GiB", accelerator.id, accelerator.name, accelerator.memory_bytes / 1024**3)
    if not found.listed:
        _log.info("no accelerator: the driver shows none")
    return found
