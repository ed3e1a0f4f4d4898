"""Runs: what works on a job on one node, one at a time, and what is remembered of those before."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tiercel.core.fields import NOT_STORED
from tiercel.core.shares import Share
from tiercel.core.starts import STARTS_KEPT, Start


@dataclass(frozen=True, slots=True)
class Move:
    """Where a job goes on once its present run has saved a checkpoint and is gone."""

    node_id: str  # the node
    share: Share  # what it may use there


@dataclass(frozen=True, slots=True)
class Silence:
    """For how long a run has shown no progress; by the clock that counts only while the broker is alive."""

    since: float  # when the run was last heard
    share_since: float  # when it was last given another share, or heard
    uncounted_seconds: float = 0.0  # of the time from ``since`` to ``share_since``, how much is not held against it


@dataclass(frozen=True, slots=True)
class RunTime:
    """For how long a run has existed."""

    seconds: float = 0.0  # as counted when it was last counted
    at: float | None = None  # when that was, seconds since the Unix epoch; None before it was heard
    # The same by the clock that counts while the broker is alive; None in a later life. Not stored.
    alive: float | None = field(default=None, metadata=NOT_STORED)


@dataclass(frozen=True, slots=True)
class RunEnvironment:
    """What the runs of a job found around them, from one of them to the next entry's."""

    run: int  # number of the first of them
    key: str = ""  # key, by content, of the environment with the packages that the job asks for; empty for none
    image_id: str = ""  # id of the image of their container; empty where they are none


@dataclass(frozen=True, slots=True)
class Run:
    """One process or container that works on a job, on one node."""

    job_id: str  # the job
    number: int  # 1 for the job's first run
    node_id: str  # the node
    share: Share  # what it may use there
    active: bool = True  # whether it may exist; what it holds is free only once this is False
    heard: bool = False  # whether it was ever heard of
    # Or None before it is heard in this life of the broker; not stored.
    silence: Silence | None = field(default=None, metadata=NOT_STORED)
    last_sequence: int = 0  # number of its latest report that was taken in
    cpu_seconds: float = 0.0  # CPU seconds it has used
    accelerator_seconds: float = 0.0  # seconds that it kept an accelerator busy; of several, the busiest counts
    # Metric of the best model once its training has ended, or None while that goes on.
    offered_value: float | None = None
    move: Move | None = None  # where its job is being moved, or None
    suspending: bool = False  # it was told to stop so that its job waits until it is resumed
    # Whether its node's agent ends it by itself when it is without us for long. Only then may the job be started
    # elsewhere while nobody knows what became of the run.
    fenced: bool = False
    time: RunTime = RunTime()  # for how long it has existed
    # For how long it had existed when it was told to end its training, as the job's time was over; None while it may
    # train.
    finishing_from: float | None = None
    # When its start was ordered, or its stop for a move, by the clock of the broker's life; None once that is measured,
    # or cannot be. Not stored.
    ordered_at: float | None = field(default=None, metadata=NOT_STORED)
    # How long it took to stop the run before it, if its job has moved; None where nobody knows.
    stop_seconds: float | None = None
    start: Start | None = None  # what it took to get to work; None before that, and where it was not measured

    @property
    def id(self) -> str:
        """What everybody calls it."""
        return run_id_of(self.job_id, self.number)

    @property
    def is_leaving(self) -> bool:
        """Whether it was told to stop so that its job goes on as another run."""
        return self.move is not None or self.suspending

    def using(self, cpu_seconds: float, accelerator_seconds: float) -> Run:
        """The run once it has used so much; neither ever becomes less."""
        return replace(
            self,
            cpu_seconds=max(self.cpu_seconds, cpu_seconds),
            accelerator_seconds=max(self.accelerator_seconds, accelerator_seconds),
        )


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """What is remembered of a job's runs before the present one."""

    count: int = 0  # how many there were; the number of the last of them
    cpu_seconds: float = 0.0  # CPU seconds they used
    accelerator_seconds: float = 0.0  # seconds that they kept an accelerator busy; of several, the busiest counts
    lost: int = 0  # how many were lost through no fault of the job; being moved is not being lost
    # When runs were lost, of those that still count, the oldest first; seconds since the Unix epoch.
    lost_at: tuple[float, ...] = ()
    migrations: int = 0  # how often one went on, as the next one, on another node
    migrated_at: float | None = None  # when that was last, or None
    seconds: float = 0.0  # for how long they existed, added up; since the job was resumed if it was
    # What the latest of them took to get to work, the oldest first, as far as that was measured.
    starts: tuple[Start, ...] = ()

    def including(self, run: Run) -> EarlierRuns:
        """These and the one that was the present one until now."""
        return replace(
            self,
            count=run.number,
            cpu_seconds=self.cpu_seconds + run.cpu_seconds,
            accelerator_seconds=self.accelerator_seconds + run.accelerator_seconds,
            seconds=self.seconds + run.time.seconds,
            starts=self.starts if run.start is None else (*self.starts, run.start)[-STARTS_KEPT:],
        )


def run_id_of(job_id: str, number: int) -> str:
    """The id of a job's run."""
    return f"{job_id}-{number}"
