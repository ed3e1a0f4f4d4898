"""What can happen to a job, and what the job's machine then asks the shell to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tiercel.core.checkpoints import StoredCheckpoint
from tiercel.core.events import JobChange
from tiercel.core.jobs import TierStatus
from tiercel.core.shares import Share

# --- Inputs -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assigned:
    """The scheduler placed the job; ``attempt`` is the number of the run that this makes, so that it is made once."""

    node_id: str
    share: Share
    attempt: int


@dataclass(frozen=True, slots=True)
class TurnCame:
    """Nobody feeds the endpoint any more that the job is queued for, and its time has come if it has one."""


@dataclass(frozen=True, slots=True)
class MoveOrdered:
    """The scheduler sends a job that runs to another node; ``attempt`` is the number of the run that begins there."""

    node_id: str
    share: Share
    attempt: int


@dataclass(frozen=True, slots=True)
class ShareUpdated:
    """The scheduler changed what a run may use."""

    run_id: str
    share: Share


@dataclass(frozen=True, slots=True)
class Deferred:
    """The scheduler could not place the job, or it is not its turn yet."""

    reason: str


@dataclass(frozen=True, slots=True)
class TierFeasibilityChanged:
    """The scheduler holds the next tier for out of reach, or (reason empty) for within reach again."""

    reason: str


@dataclass(frozen=True, slots=True)
class RunIsAlive:
    """The node says that the run exists."""

    run_id: str  # the run
    from_beginning: bool = False  # it had no checkpoint of an earlier run for it
    # Of what the node got from URLs for it, by the names of data sets.
    data_sha256: Mapping[str, str] = field(default_factory=dict)
    environment: str = ""  # key of the environment with its packages, or empty
    image_id: str = ""  # id of its container's image, or empty
    warm: bool = False  # a process, or a container, that had imported what it imports waited for it
    begun_cpu_seconds: float | None = None  # CPU seconds that it had used when it began to train; None before that


@dataclass(frozen=True, slots=True)
class RunUnknown:
    """The node's agent connected and knows nothing of the run: it has never started there, or left no trace."""

    run_id: str


@dataclass(frozen=True, slots=True)
class Reported:
    """The script reported metrics; ``at`` in seconds since the Unix epoch, ``sequence`` counts the run's reports.

    ``ended``: the training has ended, and these are the metrics of its best model, which waits to be asked for.
    """

    run_id: str
    sequence: int
    epoch: int
    metrics: Mapping[str, float]
    at: float
    cpu_seconds: float
    accelerator_seconds: float = 0.0
    ended: bool = False


@dataclass(frozen=True, slots=True)
class UsageMeasured:
    """The node measured what the run has used."""

    run_id: str
    cpu_seconds: float
    accelerator_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RunExited:
    """The run is gone and what it held is free."""

    run_id: str  # the run
    exit_code: int | None  # its exit code, -N for signal N, or None when there never was a process
    reason: str = ""  # the node's words when it could not be started or the node ended it
    log_tail: str = ""  # last lines of its output
    cpu_seconds: float = 0.0  # what it used
    lost: bool = False  # it ended through no fault of the job
    carried: bool = False  # it was stopped to be moved, and the broker has its checkpoint
    carry_error: str = ""  # it was stopped to be moved, and why its checkpoint could not be sent
    accelerator_seconds: float = 0.0  # how long it kept an accelerator busy


@dataclass(frozen=True, slots=True)
class CheckpointCopied:
    """The broker has a copy of the newest checkpoint of the run, in place of any earlier one; at a Unix time."""

    run_id: str
    at: float


@dataclass(frozen=True, slots=True)
class CheckpointStored:
    """The artefact store has a copy as well, in place of any earlier one."""

    stored: StoredCheckpoint


@dataclass(frozen=True, slots=True)
class CheckpointNotStored:
    """The artefact store has not the newest copy yet; ``problem`` says why, in a sentence."""

    problem: str


@dataclass(frozen=True, slots=True)
class CheckpointHeldAgain:
    """The artefact store has given back the copy of a run's checkpoint, which the broker had lost."""

    run_id: str


@dataclass(frozen=True, slots=True)
class CheckpointGone:
    """The artefact store has not the copy of a run's checkpoint that it should have, or not as it was stored."""

    run_id: str
    problem: str


@dataclass(frozen=True, slots=True)
class NodeSilent:
    """A node does not answer; the run may well go on there."""

    node_id: str


@dataclass(frozen=True, slots=True)
class NodeFenced:
    """A node's agent keeps a fence, or (``fenced`` is False) does not: see ``Job.fenced``."""

    node_id: str
    fenced: bool


@dataclass(frozen=True, slots=True)
class NodeGone:
    """A node has not answered for so long that its jobs should start elsewhere."""

    node_id: str


@dataclass(frozen=True, slots=True)
class DeliveryEnded:
    """The delivery of a tier, or (0) of the best model beyond them, ended: delivered (``version`` set) or failed.

    ``reason`` says why it failed, or why the version does not answer although it was delivered.
    """

    tier: int
    version: int | None
    value: float | None
    at: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """The tenant wants it to stop."""


@dataclass(frozen=True, slots=True)
class ResumeRequested:
    """The tenant wants it to go on after it has ended; with ``max_epochs`` in all, or (0) with as many as before."""

    max_epochs: int = 0


@dataclass(frozen=True, slots=True)
class SuspendRequested:
    """The tenant wants it to free what it holds and to wait until it is resumed."""


@dataclass(frozen=True, slots=True)
class Preempted:
    """The scheduler wants a run to free what it holds for another job; its job waits until there is room again."""

    run_id: str
    why: str  # in words for its tenant


@dataclass(frozen=True, slots=True)
class PrioritySet:
    """The tenant gives it another priority among its own."""

    priority: int


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed."""


CheckpointInput = CheckpointCopied | CheckpointStored | CheckpointNotStored | CheckpointHeldAgain | CheckpointGone
JobInput = (
    Assigned
    | TurnCame
    | MoveOrdered
    | ShareUpdated
    | Deferred
    | TierFeasibilityChanged
    | RunIsAlive
    | RunUnknown
    | Reported
    | UsageMeasured
    | RunExited
    | CheckpointInput
    | NodeSilent
    | NodeFenced
    | NodeGone
    | DeliveryEnded
    | CancelRequested
    | ResumeRequested
    | SuspendRequested
    | Preempted
    | PrioritySet
    | Ticked
)

# --- Effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Announce:
    """Tell everybody who follows the job."""

    change: JobChange


@dataclass(frozen=True, slots=True)
class RequestDelivery:
    """Have the model that reached a tier delivered by the node that the job is on, or by none while it is on none.

    Asking twice is harmless.
    """

    tier: TierStatus


@dataclass(frozen=True, slots=True)
class AbandonDelivery:
    """Nobody can deliver the model any more: end the delivery as failed, unless it has ended."""

    tier: TierStatus
    reason: str


@dataclass(frozen=True, slots=True)
class DeclareRun:
    """Tell the node what is wanted of the job's run now."""


@dataclass(frozen=True, slots=True)
class WithdrawRun:
    """The run is not wanted of the node any more."""

    node_id: str
    run_id: str


@dataclass(frozen=True, slots=True)
class RefuseMove:
    """Tell the scheduler that the job cannot be moved now, so that it frees what it reserved."""


@dataclass(frozen=True, slots=True)
class DropCheckpoint:
    """Nobody needs the checkpoint that the broker may hold for the job."""


@dataclass(frozen=True, slots=True)
class Reschedule:
    """Have the scheduler look at once; ``trigger`` is the value of a scheduling Trigger."""

    trigger: str


JobEffect = (
    Announce | RequestDelivery | AbandonDelivery | DeclareRun | WithdrawRun | RefuseMove | DropCheckpoint | Reschedule
)
