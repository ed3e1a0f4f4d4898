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
        cpu_cores: Cores that its program can use at the same time.
        memory_bytes: Memory limit in bytes.
        accelerators: Accelerators that its program uses at the same time. 0: it gets none.
        accelerator_memory_bytes: Memory that it needs on each accelerator. 0: all of it, so that no other job shares
            the accelerator.
        scratch_bytes: Limit for its scratch folder on the disk. 0: it has none.
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
        endpoint: Name that applications call; the job's models feed it.
        metric: Name under which the script reports the metric of the tiers.
        direction: Whether a larger or a smaller metric is better.
        tiers: Targets on the metric, from the easiest to the hardest; at least one.
        script: The program as a file, or None.
        module: The program as an installed Python module, or empty.
        image: Container image. Empty: the node's default.
        arguments: Command-line arguments of the program.
        resources: What the job may use at most.
        runtime: ``process`` or ``docker``. Empty: the node chooses.
        max_epochs: The most epochs that it trains.
        report_timeout_seconds: A run that reports nothing for so long counts as hung. Only time at full speed counts.
        continue_after_last_tier: Whether it trains until ``max_epochs`` instead of stopping at the last tier.
        endpoint_objective_seconds: Delay that the tenant wants from the endpoint (QoE objective). None: it stays
            as it is.
        variant: The variant of the endpoint that its models are. Empty: the endpoint has no variants.
        replace: Whether its models answer even if they are worse than the live version, or have other inputs or
            outputs.
        retries: How often its script starts again from its checkpoint after it failed or was killed.
        ship: What it delivers beyond its tiers.
        labels: The tenant's own words, by which programs find the job, such as ``{"sweep": "7"}``.
        requirements: Packages that its program needs, as requirements.txt has them.
        env: Variables in the environment of its program.
        secrets: Names of the tenant's secrets that its program gets as variables, too.
        retry_back_off_seconds: Pause before the first retry. It doubles with each retry, up to an hour. None: 1 s, up
            to a minute.
        retry_exit_codes: Exit codes that lead to a retry, 128 + N for signal N. Empty: all of them.
        warm_start: A job of the same tenant that is over. The new job begins with its weights. Empty: none.
        node_labels: Labels that a node must have to run it.
        priority: Among the jobs of the same tenant, those with the higher number go first, -100 to 100.
        priority_class: A class that the operator named. Among the jobs of all tenants, those of a higher class go
            first. Empty: none.
        every_seconds: The next job of its series begins so long after this one began, but not before its end. None:
            there is no next one.
        queue: Whether it waits while another job feeds its endpoint, instead of being refused.
        max_duration_seconds: Its training ends after its runs have existed for so long, added up. None: no limit.
        data: Data sets that its script reads. It runs only on nodes that have them.
        project: The folder that it runs from, by content, or None.
        command: A command line instead of a script or module. It starts in the project's folder or in the image. No
            shell reads it.
        outputs: Files in its working directory that are kept, as patterns such as ``reports/*.html``.
        warm: Whether its runs may be forked from a process of the tenant's that has imported what they import.
        ranks: Its program starts as so many processes that train one model together. None: one for each accelerator, if
            it is a Python program.
        access: Who may ask the endpoint. None: that stays as it is.
        copy_checkpoint_seconds: How often the broker gets a copy of its newest checkpoint during the training. The job
            goes on from there if its node is lost. None: never.
        replicas: On how many nodes the version of its endpoint answers, if there are as many. The endpoint keeps this
            number. :data:`AUTO_REPLICAS`: the broker chooses by the endpoint's load.
        retrain: When the broker submits it again because its model is less often right in use. None: never.
        variants: As which models each of its versions answers: ``fp32`` as it is, ``int8`` quantised, ``fp16`` in
            floating-point numbers of 16 bits. They are made of the model that it hands over. The inference server
            chooses by accuracy and delay. Empty: only as it is.
        variants_max_loss: How much less accurate a cheap variant may be, a fraction. Otherwise it is not shipped.
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
