"""Jobs and their tiers."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tiercel.core.cheap_variants import DEFAULT_MAX_LOSS
from tiercel.core.checkpoints import CheckpointCopy, StoredCheckpoint
from tiercel.core.data_sets import DataSet
from tiercel.core.endpoint_access import EndpointAccess
from tiercel.core.fields import NOT_STORED, NOT_TOLD
from tiercel.core.projects import Project
from tiercel.core.retraining import Retrain, Retrains
from tiercel.core.runs import EarlierRuns, Move, Run, RunEnvironment, run_id_of
from tiercel.core.shares import Share
from tiercel.core.shipping import Shipping
from tiercel.core.starts import STARTS_KEPT, Start
from tiercel.core.tiers import Tier, TierState, TierStatus

__all__ = [
    "DEFAULT_MAX_EPOCHS",
    "DEFAULT_REPORT_TIMEOUT_SECONDS",
    "Direction",
    "Job",
    "JobSpec",
    "JobState",
    "Observation",
    "Resources",
    "Script",
    "Tier",
    "TierState",
    "TierStatus",
    "without_script_text",
]

DEFAULT_MAX_EPOCHS = 100
DEFAULT_REPORT_TIMEOUT_SECONDS = 300.0
AUTO_REPLICAS = 0
"""A number of replicas that leaves it to the broker; people write ``auto``."""


class Direction(enum.Enum):
    """Whether a larger or a smaller metric is better."""

    MAX = "max"
    MIN = "min"

    def reaches(self, value: float, target: float) -> bool:
        """Whether ``value`` is as good as ``target`` or better. NaN reaches nothing."""
        return value >= target if self is Direction.MAX else value <= target

    def better(self, first: float, second: float) -> float:
        """The better one of two values."""
        return max(first, second) if self is Direction.MAX else min(first, second)


@dataclass(frozen=True, slots=True)
class Script:
    """A training script, shipped with the job.

    Attributes:
        name: File name without a folder.
        content: The file's text, UTF-8.
    """

    name: str
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Resources:
    """What a job may use at most.

    Attributes:
        cpu_cores: Cores its process can use at the same time.
        memory_bytes: Memory limit in bytes.
        accelerators: Those that its program uses at the same time; 0: it cannot use any, and gets none.
        accelerator_memory_bytes: Memory that it needs on each of them; 0: all there is, so that it shares the device
            with nobody.
        scratch_bytes: What its scratch folder may have on the disk; 0: it has none.
    """

    cpu_cores: float = 1.0
    memory_bytes: int = 2 * 1024**3
    accelerators: int = 0
    accelerator_memory_bytes: int = 0
    scratch_bytes: int = 0


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One training run as its tenant describes it; every default filled in.

    Attributes:
        name: A label for people.
        endpoint: Name that applications call and that this job's models feed.
        metric: Name under which the script reports the metric that the tiers are about.
        direction: Whether a larger or a smaller metric is better.
        tiers: From the easiest to the hardest; at least one.
        script: The program as a file, or None.
        module: The program as an installed Python module, or empty.
        image: Container image; empty means the node's default.
        arguments: Command-line arguments of the program.
        resources: What it may use at most.
        runtime: ``process``, ``docker`` or empty for whatever the node prefers.
        max_epochs: Epochs it may train at most.
        report_timeout_seconds: Silence after which a run counts as hung; only time at full speed counts.
        continue_after_last_tier: Keep training until ``max_epochs`` instead of stopping at the last tier.
        endpoint_objective_seconds: Delay that the tenant wants from the endpoint (QoE objective), or None to leave the
            endpoint's as it is.
        variant: Which variant of the endpoint its models are; empty for an endpoint without variants.
        replace: Let its models answer even where they are worse than what answers, or take or give something else.
        retries: How often its script is started again, from its checkpoint, after it failed or was killed.
        ship: What it delivers beyond its tiers.
        labels: Words of the tenant's own by which programs find it again, such as ``{"sweep": "7"}``.
        requirements: Packages that its program needs, as requirements.txt has them.
        env: Variables that its program finds in its environment.
        secrets: Names of the tenant's secrets that it finds there as well.
        retry_back_off_seconds: Pause before the first of its retries, which doubles with each up to an hour; None: 1 s,
            up to a minute.
        retry_exit_codes: Exit codes after which it is retried, 128 + N for signal N; empty for every one.
        warm_start: Job of the same tenant, which is over, with whose weights it begins; or empty.
        node_labels: Labels that a node must have to run it.
        priority: Among the jobs of the same tenant the ones with more go first, -100 to 100.
        priority_class: Among the jobs of all tenants those of a higher class go first, by the name that the operator
            gave it; empty for none.
        every_seconds: How long after its beginning the next job of its series begins, not before its end; None: never.
        queue: Wait while another job feeds its endpoint, instead of being refused.
        max_duration_seconds: For how long its runs may exist, added up, before its training ends; None for no limit.
        data: Data sets that its script reads; it runs only where they are.
        project: The folder that it runs from, by content, or None.
        command: A command line instead of a script or module, begun in the project's folder or in the image; read by no
            shell.
        outputs: Which files that it leaves in its working directory are kept, as patterns such as ``reports/*.html``.
        warm: Whether its runs may be forked from a process of the tenant's that has imported what they import.
        ranks: As how many processes, which train one model together, its program is started; None: as one for each
            accelerator, where it is a Python program.
        access: Who may ask the endpoint, or None to leave it as it is.
        copy_checkpoint_seconds: How often the broker gets a copy of its newest checkpoint while it trains, to go on
            from if its node is lost; None: never.
        replicas: On how many nodes its endpoint's version answers, where there are as many; becomes the endpoint's.
            :data:`AUTO_REPLICAS`: the broker says, by the endpoint's load.
        retrain: When the broker submits it again, since its model is less often right in use; None: never.
        variants: As which models each of its versions answers, made of the one that it hands over: ``fp32`` as it is,
            ``int8`` quantised, ``fp16`` in floating-point numbers of 16 bits; the inference server chooses by accuracy
            and delay. Empty for as it is.
        variants_max_loss: By how much a cheap variant may be less accurate, a fraction; else it is not shipped.
    """

    name: str
    endpoint: str
    metric: str
    direction: Direction
    tiers: tuple[Tier, ...]
    script: Script | None = None
    module: str = ""
    image: str = ""
    arguments: tuple[str, ...] = ()
    resources: Resources = field(default_factory=Resources)
    runtime: str = ""
    max_epochs: int = DEFAULT_MAX_EPOCHS
    report_timeout_seconds: float = DEFAULT_REPORT_TIMEOUT_SECONDS
    continue_after_last_tier: bool = False
    endpoint_objective_seconds: float | None = None
    variant: str = ""
    replace: bool = False
    retries: int = 0
    ship: Shipping = field(default_factory=Shipping)
    labels: Mapping[str, str] = field(default_factory=dict)
    requirements: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    retry_back_off_seconds: float | None = None
    retry_exit_codes: tuple[int, ...] = ()
    max_duration_seconds: float | None = None
    data: tuple[DataSet, ...] = ()
    project: Project | None = None
    command: tuple[str, ...] = ()
    warm_start: str = ""
    node_labels: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    every_seconds: float | None = None
    queue: bool = False
    outputs: tuple[str, ...] = ()
    warm: bool = True
    ranks: int | None = None
    access: EndpointAccess | None = None
    copy_checkpoint_seconds: float | None = None
    replicas: int = 1
    retrain: Retrain | None = None
    variants: tuple[str, ...] = ()
    variants_max_loss: float = DEFAULT_MAX_LOSS
    priority_class: str = ""


def without_script_text(spec: JobSpec) -> JobSpec:
    """The spec, its script without content."""
    return spec if spec.script is None else replace(spec, script=replace(spec.script, content=b""))


class JobState(enum.Enum):
    """Where a job is in its life; see ``broker/lifecycle/README.md`` for the edges.

    Of the final ones, ``COMPLETED`` says that every tier is delivered, ``MISSED`` that the script was done by itself
    before that.
    """

    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    DISCONNECTED = "disconnected"
    STOPPING = "stopping"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    MISSED = "missed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether nothing happens to the job any more."""
        return self in _FINAL_STATES


_FINAL_STATES = frozenset({JobState.COMPLETED, JobState.MISSED, JobState.FAILED, JobState.CANCELLED})


@dataclass(frozen=True, slots=True)
class Observation:
    """One report of the metric."""

    at: float  # when it was reported, seconds since the Unix epoch
    epoch: int  # training epoch it belongs to
    value: float  # the spec's metric
    cpu_seconds: float  # CPU seconds the job had used by then
    accelerator_seconds: float = 0.0  # seconds of the accelerator that it keeps busiest, likewise


@dataclass(frozen=True, slots=True)
class Job:
    """A job as its actor knows it. Times are seconds since the Unix epoch."""

    id: str  # unique, short, made by the broker
    tenant: str  # name of the owner
    spec: JobSpec  # what was asked for
    submitted_at: float  # when it was accepted; of the next job of a series, when it begins
    state: JobState = JobState.PENDING  # where it is in its life
    reason: str = ""  # plain words about the state
    idempotency_key: str = ""  # the client's key, or empty
    # Its present run; of a job that has ended, or is about to, the last one; None while it waits for one.
    run: Run | None = None
    earlier: EarlierRuns = field(default_factory=EarlierRuns)  # what is remembered of the runs before that
    started_at: float | None = None  # when it first ran, or None
    finished_at: float | None = None  # when it reached a final state, or None
    stop_outcome: JobState | None = None  # the final state that a confirmed stop leads to, or None
    stop_reason: str = ""  # why it was asked to stop, or empty; decides the final state
    # Its tenant wants it to wait until it is resumed; its present run, if it has one, is stopped for that.
    suspended: bool = False
    # Of what its newest run got from the URLs of its data sets, by their names.
    data_sha256: Mapping[str, str] = field(default_factory=dict)
    # What its runs found around them, each where it changed, the oldest first; bounded.
    environments: tuple[RunEnvironment, ...] = ()
    log_tail: str = ""  # last lines of output of the run that failed last
    retries: int = 0  # how many of the spec's retries it has used, since it was resumed if it was
    # When its pause before the next try is over, by the clock of the broker's life; None while it has none. Not stored.
    retry_at: float | None = field(default=None, metadata=NOT_STORED)
    # Before when it does not begin, as the next job of a series; None for one that may begin.
    starts_at: float | None = None
    # Its number in the queue of jobs that wait until the ones that feed its endpoint are over; 0 for none.
    queued: int = 0
    warm_node: str = ""  # node that has the checkpoint of ``spec.warm_start``, or empty
    # What it is to replace, and what that may cost, if the broker submitted it for that.
    retrains: Retrains | None = field(default=None, metadata=NOT_TOLD)
    carried_run: str = ""  # run whose checkpoint the broker holds for the present run, or for the next one; else empty
    # The newest copy of a checkpoint that the broker keeps of it, where its spec asks for copies; or None.
    copy: CheckpointCopy | None = None
    # It can go on from that copy alone once the artefact store has given it back. Not stored.
    awaits_copy: bool = field(default=False, metadata=NOT_STORED)
    # It goes on from that copy on any node, as the broker is on another machine, and a node of an earlier one's name
    # may be as well. Not stored.
    prefers_copy: bool = field(default=False, metadata=NOT_STORED)
    stored: StoredCheckpoint | None = None  # the newest such copy that is in the artefact store as well, or None
    # Why a newer one is not there yet; plain words, or empty. Not stored.
    store_problem: str = field(default="", metadata=NOT_STORED)
    # Why it waits if its run was suspended for another job, in words; of one that runs again empty.
    preempted: str = field(default="", metadata=NOT_TOLD)
    checkpoint_node: str = ""  # while it waits: node that has its newest checkpoint, or empty
    epoch: int = 0  # latest epoch reported
    latest_value: float | None = None  # latest value of the metric, or None
    best_value: float | None = None  # best value of the metric, or None
    tiers: tuple[TierStatus, ...] = ()  # status of each tier, in order
    # The delivery of its best model beyond the tiers that is under way, as a tier with number 0; or None.
    best: TierStatus | None = None
    best_deliveries: int = 0  # how many of those there were, the one under way among them
    shipped_value: float | None = None  # metric of the best model that it has delivered, or None
    shipped_at: float | None = None  # when it last delivered one, or None

    @property
    def attempts(self) -> int:
        """How many runs were started."""
        return self.run.number if self.run is not None else self.earlier.count

    @property
    def run_id(self) -> str:
        """Id of the newest run, be it over or not; empty before the first."""
        return run_id_of(self.id, self.attempts) if self.attempts else ""

    @property
    def run_active(self) -> bool:
        """Whether it has a run that may exist."""
        return self.run is not None and self.run.active

    @property
    def node_id(self) -> str:
        """Where it is placed, or empty."""
        return self.run.node_id if self.run is not None else ""

    @property
    def share(self) -> Share | None:
        """What it may use there, or None."""
        return self.run.share if self.run is not None else None

    @property
    def starts(self) -> tuple[Start, ...]:
        """What its latest runs took to get to work, the oldest first, as far as that was measured."""
        start = self.run.start if self.run is not None else None
        return self.earlier.starts if start is None else (*self.earlier.starts, start)[-STARTS_KEPT:]

    @property
    def last_sequence(self) -> int:
        """Number of the present run's latest report that was taken in, or 0."""
        return self.run.last_sequence if self.run is not None else 0

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of all its runs."""
        return self.earlier.cpu_seconds + (self.run.cpu_seconds if self.run is not None else 0.0)

    @property
    def accelerator_seconds(self) -> float:
        """Seconds that all its runs kept an accelerator busy; of several, the busiest counts."""
        return self.earlier.accelerator_seconds + (self.run.accelerator_seconds if self.run is not None else 0.0)

    @property
    def is_spent(self) -> bool:
        """Whether it is a retraining that has used all that it may."""
        used = self.cpu_seconds + self.accelerator_seconds
        return self.retrains is not None and used >= self.retrains.budget_seconds

    @property
    def concerns_scheduler(self) -> bool:
        """Whether it holds a place on a node or waits for one."""
        waits = self.state is JobState.PENDING and self.stop_outcome is None
        may_begin = self.retry_at is None and self.starts_at is None and not self.queued and not self.awaits_copy
        return self.run_active or (waits and may_begin)

    @property
    def moving_to(self) -> Move | None:
        """Where it goes once its present run, which is being stopped for that, is gone; or None."""
        return self.run.move if self.run is not None and self.run.active and self.stop_outcome is None else None

    @property
    def starts_warm(self) -> bool:
        """Whether its next run begins with the checkpoint of another job: it has not got anywhere by itself yet."""
        return bool(self.spec.warm_start) and self.best_value is None

    @property
    def is_moving(self) -> bool:
        """Whether its present run is being stopped so that it goes on elsewhere."""
        return self.moving_to is not None

    @property
    def is_leaving(self) -> bool:
        """Whether its present run is being stopped, with its checkpoint, so that the job goes on as another run."""
        return self.run is not None and self.run.active and self.run.is_leaving and self.stop_outcome is None

    @property
    def is_stopping(self) -> bool:
        """Whether its present run was told to stop, for good or so that the job waits."""
        run = self.run
        return run is not None and run.active and (run.suspending or self.stop_outcome is not None)

    def is_going_to(self, node_id: str) -> bool:
        """Whether it is being moved to this node, where its share is then reserved."""
        return self.moving_to is not None and self.moving_to.node_id == node_id

    def delivery_count(self, tier: TierStatus) -> int:
        """What tells the delivery that is wanted now of a tier, or of the best model beyond them, from earlier ones."""
        return tier.failed_deliveries if tier.number else self.best_deliveries
