"""A table of a node's runs over a runtime that starts nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from testing.jobs import make_spec
from testing.until import until
from tiercel.trainer_agent.connection.calls import BrokerCalls
from tiercel.trainer_agent.connection.dialling import LocalDialler
from tiercel.trainer_agent.connection.outbox import Reporter
from tiercel.trainer_agent.connection.pace import Pace
from tiercel.trainer_agent.data.run_data import RunData
from tiercel.trainer_agent.disk.job_retention import EndedJobs, Retention
from tiercel.trainer_agent.disk.parts import Parts
from tiercel.trainer_agent.disk.scratch import ScratchFolders
from tiercel.trainer_agent.environments.environments import EnvironmentLimits, Environments
from tiercel.trainer_agent.environments.image_layers import ImageLayers
from tiercel.trainer_agent.environments.index import PackageIndex
from tiercel.trainer_agent.limits.contract import CpuShare, Limits, Share, Usage
from tiercel.trainer_agent.limits.cooperative import Cooperative
from tiercel.trainer_agent.runs.checkpoint_copies import CheckpointCopies
from tiercel.trainer_agent.runs.checkpoint_transfer import CheckpointTransfer
from tiercel.trainer_agent.runs.file_transfer import FileTransfer
from tiercel.trainer_agent.runs.files import RunPlaces
from tiercel.trainer_agent.runs.hand_over import HandOver
from tiercel.trainer_agent.runs.order import RunOrder
from tiercel.trainer_agent.runs.preparation import Preparation
from tiercel.trainer_agent.runs.projects import ProjectFetcher
from tiercel.trainer_agent.runs.scripts import ScriptFetcher
from tiercel.trainer_agent.runs.secrets import SecretFetcher
from tiercel.trainer_agent.runs.stopping import StopPatience
from tiercel.trainer_agent.runs.table import RunTable
from tiercel.trainer_agent.runtimes.contract import Exit, Launch, Output
from tiercel.trainer_agent.supervision import Supervisor


class FakeRun:
    """A run that ends when it is told to."""

    description = "nothing"
    note = image_id = ""
    is_warm = False

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.over = asyncio.Event()
        self.written = asyncio.Event()

    async def output(self, position: str = "") -> AsyncIterator[Output]:
        self.read_from = position
        await until(lambda: self.written.is_set() or self.over.is_set(), seconds=60.0)
        if self.written.is_set() and not position:
            yield Output(b"8 bytes\n", "8")
        await self.over.wait()
        yield Output(b"done\n", "13")

    async def wait(self) -> Exit:
        await self.over.wait()
        return Exit(0)

    async def stop(self, grace_seconds: float) -> None:
        del grace_seconds
        self.asked.set()
        await self.over.wait()

    async def apply_share(self, share: CpuShare) -> None:
        """Nobody uses it."""

    async def usage(self) -> Usage:
        return Usage()

    def pids(self) -> list[int]:
        return []

    async def close(self) -> None:
        self.over.set()


class FakeRuntime:
    """Remembers what it was asked to start."""

    name = "process"
    owner = None
    image_python = None

    def __init__(self) -> None:
        self.runs: dict[str, FakeRun] = {}
        self.launches: dict[str, Launch] = {}

    async def start(self, launch: Launch) -> FakeRun:
        run = self.runs[launch.run_id] = FakeRun()
        self.launches[launch.run_id] = launch
        return run

    async def images(self) -> Sequence[str]:
        return ()

    async def adopt(self, launch: Launch) -> FakeRun | None:
        return self.runs.get(launch.run_id)

    async def remove_leftovers(self, kept: Collection[str]) -> None:
        self.kept = set(kept)

    async def close(self) -> None:
        """There is nothing to let go of."""


class FakeLimits:
    """Paces nobody."""

    def paces(self) -> Mapping[str, float]:
        return {}


def table_in(
    folder: Path, runtime: FakeRuntime, tasks: Supervisor, broker: str = "", data: RunData | None = None
) -> RunTable:
    places = RunPlaces(folder)
    calls = BrokerCalls("n1", "instance", LocalDialler(lambda: broker, str))
    return RunTable(
        places,
        {"process": cast("Any", runtime)},
        cast("Limits", FakeLimits()),
        Reporter(),
        tasks,
        StopPatience(trainer=600.0),
        Preparation(
            ScriptFetcher(calls),
            SecretFetcher(calls),
            Environments(
                folder / "environments", PackageIndex(), EnvironmentLimits(), Cooperative(1.0), tasks, lambda _: True
            ),
            ImageLayers("/environment"),
            ProjectFetcher(calls, folder / "projects"),
            CheckpointTransfer(calls, Parts(folder / "carried", 1024**3)),
            data or RunData(folder),
            ScratchFolders(folder / "scratch"),
        ),
        HandOver(
            CheckpointTransfer(calls, Parts(folder / "carried", 1024**3)),
            FileTransfer(calls, folder / "outgoing"),
            CheckpointCopies(CheckpointTransfer(calls, Parts(folder / "carried", 1024**3)), Pace()),
        ),
        EndedJobs(places.jobs, folder / "ended-jobs", Retention()),
    )


def order(run_id: str, **spec: Any) -> RunOrder:
    return RunOrder(run_id, run_id.rpartition("-")[0], make_spec(**spec), Share(CpuShare(1.0)))
