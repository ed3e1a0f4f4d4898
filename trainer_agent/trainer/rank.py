"""Which one of a run's ranks a process is: processes that train one model together, each on a part of the data."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Rank:
    """Which one of several processes this is."""

    number: int = 0  # from 0
    count: int = 1  # how many there are
    local: int = 0  # its number on this machine

    @classmethod
    def of_process(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """As the process group says, else as the launcher says in the environment; else it is the only one."""
        distributed = sys.modules.get("torch.distributed")  # a script that has a process group has imported it
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            number, count = distributed.get_rank(), distributed.get_world_size()
        else:
            number, count = _number(environment, "RANK"), _number(environment, "WORLD_SIZE")
        if not 0 <= number < count:
            return cls()
        return cls(number, count, _number(environment, "LOCAL_RANK", number))

    def devices(self, count: int) -> range:
        """Its own of so many accelerators, as PyTorch numbers them: as many for each rank."""
        if not 1 < self.count <= count:
            return range(count)
        return range(self.local * count // self.count, (self.local + 1) * count // self.count)


def _number(environment: Mapping[str, str], name: str, otherwise: int = 0) -> int:
    try:
        return int(environment.get(name, otherwise))
    except ValueError:
        return otherwise
