"""The environments of a node, built offline from packages that tests write."""

from __future__ import annotations

import asyncio
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tiercel.trainer_agent.environments import building
from tiercel.trainer_agent.environments.environments import EnvironmentLimits, Environments
from tiercel.trainer_agent.environments.index import PackageIndex
from tiercel.trainer_agent.environments.layers import Layer
from tiercel.trainer_agent.limits.contract import Limits
from tiercel.trainer_agent.limits.cooperative import Cooperative
from tiercel.trainer_agent.supervision import Supervisor


@dataclass
class NodeEnvironments:
    """A node's environments, and what was said of them."""

    folder: Path
    tasks: Supervisor
    live: set[str] = field(default_factory=set)
    said: list[str] = field(default_factory=list)
    limits: EnvironmentLimits = field(default_factory=EnvironmentLimits)
    sdists: bool = False
    confines: Limits = field(default_factory=lambda: Cooperative(2.0))

    @property
    def wheels(self) -> Path:
        """Where packages come from."""
        return self.folder / "wheels"

    @property
    def state(self) -> Path:
        """Where environments are."""
        return self.folder / "environments"

    def __post_init__(self) -> None:
        self.wheels.mkdir()
        self.begin_life()

    def begin_life(self) -> None:
        """As after a start of the agent."""
        index = PackageIndex(wheels=self.wheels, offline=True, sdists=self.sdists)
        self.environments = Environments(
            self.state, index, self.limits, self.confines, self.tasks, self.live.__contains__
        )

    async def ready(self, *requirements: str, run_id: str = "job-1", image: Layer | None = None) -> str:
        """The interpreter of an environment."""
        async with asyncio.timeout(90):
            return await self.environments.ready(run_id, requirements, self.said.append, image)

    def built(self) -> list[Path]:
        """The folders of what is there."""
        return [each for each in self.state.glob("*") if (each / building.COMPLETE).exists()]


def prints(interpreter: str, code: str) -> str:
    """What a program prints that runs with an interpreter of an environment."""
    done = subprocess.run([interpreter, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
