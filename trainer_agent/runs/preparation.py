"""Fills the folder of a job with what its next run needs: script or project, secret, the checkpoint of another node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tiercel.core.tasks import run_in_thread, run_until_one_ends
from tiercel.trainer_agent.data.run_data import RunData
from tiercel.trainer_agent.disk.job_folder import JobFolder, ScriptFile
from tiercel.trainer_agent.disk.scratch import ScratchFolders
from tiercel.trainer_agent.environments.building import key_of, made_of
from tiercel.trainer_agent.environments.environments import Environments
from tiercel.trainer_agent.environments.image_layers import ImageLayers
from tiercel.trainer_agent.runs.checkpoint_transfer import CheckpointTransfer
from tiercel.trainer_agent.runs.order import RunOrder
from tiercel.trainer_agent.runs.projects import ProjectFetcher
from tiercel.trainer_agent.runs.scripts import ScriptFetcher
from tiercel.trainer_agent.runs.secrets import SecretFetcher
from tiercel.trainer_agent.runtimes.contract import Launch, Runtime

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Preparation:
    """Makes folders of jobs ready for their runs."""

    scripts: ScriptFetcher  # fetches scripts
    secrets: SecretFetcher  # fetches secrets
    environments: Environments  # builds environments
    image_layers: ImageLayers  # knows what images have
    projects: ProjectFetcher  # fetches projects
    transfer: CheckpointTransfer  # transfers checkpoints
    data: RunData  # has data sets at hand
    scratch: ScratchFolders  # makes scratch folders

    async def prepare(
        self,
        order: RunOrder,
        folder: JobFolder,
        *,
        token: str,
        runtime: Runtime,
        check: Callable[[], None],
        stopped: Callable[[], Coroutine[Any, Any, None]],
        say: Callable[[str], None],
    ) -> Launch:
        """Make a job's folder ready for a run; returns what to start.

        Args:
            order: What is to start.
            folder: The job's.
            token: The run's secret.
            runtime: What starts it.
            check: Called after each fetch, which may have taken long; raises where the run is not to start any more.
            stopped: Waits until that is so.
            say: Given lines for its log.

        Raises:
            TransferError: Something did not come from the broker, or a data set is gone.
            RunFailedError: The run cannot be prepared.
        """
        owner = runtime.owner
        data = await self.data.mounts(order.run_id, order.spec.data, say, check)
        script = None
        if order.script_sha256:
            content = await _while_wanted(self.scripts.fetch(order.run_id, order.script_sha256), stopped, check)
            script = ScriptFile(order.script_name, content)
        check()
        await asyncio.to_thread(folder.prepare, token=token, script=script, owner=owner)
        if order.project_sha256:
            await _while_wanted(self._put_project(order, folder, owner), stopped, check)
        if order.transferred:
            await self.transfer.fetch(order.run_id, folder, owner)
            check()
        elif order.warm_start:
            await self.transfer.start_warm(order.run_id, folder, order.warm_start, owner)
            check()
        scratch = None
        if order.spec.resources.scratch_bytes:
            scratch = await asyncio.to_thread(self.scratch.make, order.run_id, owner)
        launch = replace(order.launch(folder.path), data=data, scratch=scratch)
        if order.spec.requirements:
            launch = await _while_wanted(self._with_packages(order, launch, runtime, say), stopped, check)
        if order.spec.secrets:  # last, so that they are here no longer than they have to be
            secrets = await _while_wanted(self.secrets.fetch(order.run_id), stopped, check)
            launch = replace(launch, secrets=secrets)
        return launch

    async def _with_packages(
        self, order: RunOrder, launch: Launch, runtime: Runtime, say: Callable[[str], None]
    ) -> Launch:
        """With an environment over what there is: of the node, or of the image, whose content is what it is then."""
        layer = None
        if runtime.image_python is not None:
            launch = replace(launch, image=await runtime.image_python.identify(launch.image))
            layer = await self.image_layers.of(launch.image, runtime.image_python.ask, say)
        python = await self.environments.ready(order.run_id, order.spec.requirements, say, layer)
        return replace(launch, python=python, environment_key=key_of(python), environment_made=made_of(python))

    async def _put_project(self, order: RunOrder, folder: JobFolder, owner: tuple[int, int] | None) -> None:
        async with self.projects.fetched(order.run_id, order.project_sha256) as project:
            await run_in_thread(folder.put_project, project.entries, project.path, owner)


async def _while_wanted(
    work: Coroutine[Any, Any, _T], stopped: Callable[[], Coroutine[Any, Any, None]], check: Callable[[], None]
) -> _T:
    """What some work comes to; it is broken off, and ``check`` raises, as soon as the run is not to start any more."""
    found: list[_T] = []

    async def do() -> None:
        found.append(await work)

    await run_until_one_ends(work=do(), stop=stopped())
    check()
    return found[0]
