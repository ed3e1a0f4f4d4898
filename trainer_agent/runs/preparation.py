"""Fills the folder of a job with what its next run needs: script, secret, and the checkpoint of another node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tiercel.trainer_agent.disk.job_folder import JobFolder, ScriptFile
from tiercel.trainer_agent.runs.checkpoint_transfer import CheckpointTransfer
from tiercel.trainer_agent.runs.order import RunOrder
from tiercel.trainer_agent.runs.scripts import ScriptFetcher


async def prepare(
    order: RunOrder,
    folder: JobFolder,
    *,
    token: str,
    owner: tuple[int, int] | None,
    scripts: ScriptFetcher,
    transfer: CheckpointTransfer,
    check: Callable[[], None],
) -> None:
    """Make a job's folder ready for a run.

    Args:
        order: What is to start.
        folder: The job's.
        token: The run's secret.
        owner: User and group id that the run has, or None if they are the agent's.
        scripts: Fetches the script.
        transfer: Fetches the checkpoint.
        check: Called after each fetch, which may have taken long; raises where the run is not to start any more.

    Raises:
        TransferError: Something did not come from the broker.
        RunFailedError: The folder cannot be prepared.
    """
    script = None
    if order.script_sha256:
        script = ScriptFile(order.spec.script.name, await scripts.fetch(order.run_id, order.script_sha256))
    check()
    await asyncio.to_thread(folder.prepare, token=token, script=script, owner=owner)
    if order.transferred:
        await transfer.fetch(order.run_id, folder, owner)
        check()
