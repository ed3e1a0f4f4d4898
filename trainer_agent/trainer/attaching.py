"""Puts together a run that an agent started."""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import math
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tiercel.trainer_agent.errors import AgentUnreachableError, ConnectedError
from tiercel.trainer_agent.trainer.accelerators import Accelerators
from tiercel.trainer_agent.trainer.attached import EXIT_WAIT_SECONDS, AttachedJob
from tiercel.trainer_agent.trainer.channel import SOCKET_FILE, AgentChannel, Terminated
from tiercel.trainer_agent.trainer.checkpoints import CheckpointStore
from tiercel.trainer_agent.trainer.deliveries import Deliveries
from tiercel.trainer_agent.trainer.handover import Handover
from tiercel.trainer_agent.trainer.imports import write_imports
from tiercel.trainer_agent.trainer.leading import Leader
from tiercel.trainer_agent.trainer.rank import Rank
from tiercel.trainer_agent.trainer.restoring import RunKeeper
from tiercel.trainer_agent.trainer.signals import call_on_sigterm
from tiercel.trainer_agent.trainer.signature import Evaluate
from tiercel.trainer_agent.trainer.tiers import TierTracker
from tiercel.trainer_agent.trainer.trained import Trained
from tiercel.v1 import common_pb2, trainer_pb2

if TYPE_CHECKING:
    from tiercel.trainer_agent.trainer.following import FollowerJob

EXIT_WAIT_VARIABLE = "TIERCEL_EXIT_WAIT_SECONDS"
# An agent that is being started again needs a few seconds.
WELCOME_WAIT_SECONDS = 60.0
# A run that waits for its turn may get so little CPU that it has not even dialled by then. So it waits on until it has
# used this much, or for so long.
WELCOME_CPU_SECONDS = 0.05
LONGEST_WELCOME_WAIT_SECONDS = 1800.0
_POLL_SECONDS = 1.0
EXPORTS_FOLDER = "exports"
CHECKPOINTS_FOLDER = "checkpoints"

_open: set[Path] = set()
"""Folders of the runs that this process is connected to: the agent talks to one of its connections only."""


@dataclass(frozen=True, slots=True)
class Training:
    """What the script hands to the library; see :func:`tiercel.trainer.connect`."""

    trained: Trained
    evaluate: Evaluate | None
    checkpoint_seconds: float


def attach(run_directory: Path, training: Training, rank: Rank) -> AttachedJob | FollowerJob:
    """Dial the agent, or rank 0 from another rank, restore the last checkpoint, and see to a clean end of the process.

    Raises:
        AgentUnreachableError: If the agent does not welcome the process.
        ConnectedError: If the process is connected already.
        CheckpointError: If an earlier checkpoint does not fit.
        RanksError: If another rank is gone, or does not come.
    """
    if run_directory in _open:
        raise ConnectedError(
            "connect() was called before in this run, which trains one model; put its parts into one torch.nn.Module, "
            "or close() the first job"
        )
    return _follow(run_directory, training, rank) if rank.number else _lead(run_directory, training, rank)


def _lead(run_directory: Path, training: Training, rank: Rank) -> AttachedJob:
    with contextlib.ExitStack() as stack:
        leader = Leader(run_directory, rank) if rank.count > 1 else None
        if leader is not None:
            stack.callback(leader.close)
        channel = AgentChannel(run_directory)
        stack.callback(channel.close)
        channel.start()
        welcome = _wait_welcome(channel, run_directory)
        if leader is not None:
            leader.gather(welcome)
        _use_threads(training.trained, welcome.cpu_cores, rank)
        resources = contextlib.ExitStack()
        job = _job(run_directory, training, channel, welcome, resources, leader, rank)
        job.restore()
        if leader is not None:
            leader.wait_ready()
        call_on_sigterm(lambda: channel.put_request(Terminated()), stack)
        _import_early(stack)
        _close_at_exit(job)
        _open.add(run_directory)
        stack.callback(_open.discard, run_directory)
        # From here on the job owns what was opened.
        resources.push(stack.pop_all())
    return job


def _follow(run_directory: Path, training: Training, rank: Rank) -> FollowerJob:
    # PyTorch's, as all jobs of several ranks are; others need not import it.
    from tiercel.trainer_agent.trainer.following import FollowerJob, LeaderLink

    with contextlib.ExitStack() as stack:
        leader = LeaderLink(run_directory, rank)
        stack.callback(leader.close)
        welcome = leader.welcome()
        _use_threads(training.trained, welcome.cpu_cores, rank)
        resources = contextlib.ExitStack()
        job = FollowerJob(
            training.trained,
            leader=leader,
            welcome=welcome,
            keeper=_keeper(run_directory, training, rank),
            accelerators=Accelerators.of(welcome.accelerators, rank),
            resources=resources,
        )
        job.restore()
        call_on_sigterm(job.terminate, stack)
        _close_at_exit(job)
        _open.add(run_directory)
        stack.callback(_open.discard, run_directory)
        resources.push(stack.pop_all())
    return job


def _use_threads(trained: Trained, cpu_cores: float, rank: Rank) -> None:
    if cpu_cores > 0:
        trained.use_threads(max(1, math.ceil(cpu_cores) // rank.count))


def _keeper(run_directory: Path, training: Training, rank: Rank) -> RunKeeper:
    folder, trained = run_directory / CHECKPOINTS_FOLDER, training.trained
    store = CheckpointStore(folder, trained.checkpoint_format, interval_seconds=training.checkpoint_seconds)
    return RunKeeper(store, trained, rank.number)


def _wait_welcome(channel: AgentChannel, run_directory: Path) -> trainer_pb2.TrainerWelcome:
    started, used_before, waited = time.monotonic(), time.process_time(), 0.0
    while has_patience(waited, time.process_time() - used_before):
        # A stream begins with the welcome, so nothing that matters comes before the first.
        request = channel.wait_request(min(_POLL_SECONDS, WELCOME_WAIT_SECONDS))
        if isinstance(request, trainer_pb2.TrainerWelcome):
            return request
        waited = time.monotonic() - started
    message = (
        f"the node's agent did not answer at {run_directory / SOCKET_FILE} for {waited:.1f} s; "
        "see the agent's log, or unset TIERCEL_RUN_DIR to run the script on its own"
    )
    raise AgentUnreachableError(message)


def has_patience(waited_seconds: float, used_seconds: float) -> bool:
    """Whether to wait on for the agent."""
    if waited_seconds < WELCOME_WAIT_SECONDS:
        return True
    return used_seconds < WELCOME_CPU_SECONDS and waited_seconds < LONGEST_WELCOME_WAIT_SECONDS


def _job(
    run_directory: Path,
    training: Training,
    channel: AgentChannel,
    welcome: trainer_pb2.TrainerWelcome,
    resources: contextlib.ExitStack,
    leader: Leader | None,
    rank: Rank,
) -> AttachedJob:
    trained, exports = training.trained, run_directory / EXPORTS_FOLDER
    handover = Handover(trained, training.evaluate, metric=welcome.metric, exports=exports)
    tiers = TierTracker(
        smaller_is_better=welcome.direction == common_pb2.DIRECTION_MIN,
        targets=[tier.target for tier in welcome.tiers],
        keep_from=welcome.keep_from if welcome.HasField("keep_from") else None,
    )
    return AttachedJob(
        trained,
        channel=channel,
        welcome=welcome,
        deliveries=Deliveries(trained, tiers, handover, channel, metric=welcome.metric),
        keeper=_keeper(run_directory, training, rank),
        accelerators=Accelerators.of(welcome.accelerators, rank, [] if leader is None else leader.followers),
        leader=leader,
        resources=resources,
        exit_wait_seconds=float(os.environ.get(EXIT_WAIT_VARIABLE, EXIT_WAIT_SECONDS)),
        at_first_report=functools.partial(write_imports, run_directory, time.process_time()),
    )


def _close_at_exit(job: AttachedJob | FollowerJob) -> None:
    owner = os.getpid()

    def close() -> None:
        if os.getpid() == owner:
            job.close_at_exit()
            # At its end the interpreter would look through every object of PyTorch's modules: about a CPU second.
            gc.freeze()

    atexit.register(close)


def _import_early(resources: contextlib.ExitStack) -> None:
    """Load what the first export needs while the first epoch trains. PyTorch's own parts stay with the main thread."""

    def load() -> None:
        importlib.import_module("onnx.checker")
        importlib.import_module("onnxruntime")

    thread = threading.Thread(target=load, name="tiercel-imports", daemon=True)
    thread.start()
    # An interpreter must not end in the middle of an import of native code.
    resources.callback(thread.join, 10.0)
