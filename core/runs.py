"""Runs: what works on a job on one node, one at a time, and what is remembered of those before."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tiercel.core.fields import NOT_STORED
from tiercel.core.shares import Share
from tiercel.core.starts import STARTS_KEPT, Start


@dataclass(frozen=True, slots=True)
class Move:
    """Where a job goes on once its present run has saved a checkpoint and is gone.

    Attributes:
        node_id: The node.
        share: What it may use there.
    """

    node_id: str
    share: Share


@dataclass(frozen=True, slots=True)
class Silence:
    """For how long a run has shown no progress; by the clock that counts only while the broker is alive.

    Attributes:
        since: When the run was last heard.
        share_since: When it was last given another share, or heard.
        uncounted_seconds: Of the time from ``since`` to ``share_since``, how much is not held against it.
    """

    since: float
    share_since: float
    uncounted_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RunTime:
    """For how long a run has existed.

    Attributes:
        seconds: As counted when it was last counted.
        at: When that was, seconds since the Unix epoch; None before it was heard.
        alive: The same by the clock that counts while the broker is alive; None in a later life. Not stored.
    """

    seconds: float = 0.0
    at: float | None = None
    alive: float | None = field(default=None, metadata=NOT_STORED)


@dataclass(frozen=True, slots=True)
class RunEnvironment:
    """What the runs of a job found around them, from one of them to the next entry's.

    Attributes:
        run: Number of the first of them.
        key: Key, by content, of the environment with the packages that the job asks for; empty for none.
        image_id: Id of the image of their container; empty where they are none.
    """

    run: int
    key: str = ""
    image_id: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """One process or container that works on a job, on one node.

    Attributes:
        job_id: The job.
        number: 1 for the job's first run.
        node_id: The node.
        share: What it may use there.
        active: Whether it may exist; what it holds is free only once this is False.
        heard: Whether it was ever heard of.
        silence: Or None before it is heard in this life of the broker; not stored.
        last_sequence: Number of its latest report that was taken in.
        cpu_seconds: CPU seconds it has used.
        accelerator_seconds: Seconds that it kept an accelerator busy; of several, the busiest counts.
        offered_value: Metric of the best model once its training has ended, or None while that goes on.
        move: Where its job is being moved, or None.
        suspending: It was told to stop so that its job waits until it is resumed.
        fenced: Whether its node's agent ends it by itself when it is without us for long. Only then may the job be
            started elsewhere while nobody knows what became of the run.
        time: For how long it has existed.
        finishing_from: For how long it had existed when it was told to end its training, as the job's time was over;
            None while it may train.
        ordered_at: When its start was ordered, or its stop for a move, by the clock of the broker's life; None once
            that is measured, or cannot be. Not stored.
        stop_seconds: How long it took to stop the run before it, if its job has moved; None where nobody knows.
        start: What it took to get to work; None before that, and where it was not measured.
    """

    job_id: str
    number: int
    node_id: str
    share: Share
    active: bool = True
    heard: bool = False
    silence: Silence | None = field(default=None, metadata=NOT_STORED)
    last_sequence: int = 0
    cpu_seconds: float = 0.0
    accelerator_seconds: float = 0.0
    offered_value: float | None = None
    move: Move | None = None
    suspending: bool = False
    fenced: bool = False
    time: RunTime = RunTime()
    finishing_from: float | None = None
    ordered_at: float | None = field(default=None, metadata=NOT_STORED)
    stop_seconds: float | None = None
    start: Start | None = None

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
    """What is remembered of a job's runs before the present one.

    Attributes:
        count: How many there were; the number of the last of them.
        cpu_seconds: CPU seconds they used.
        accelerator_seconds: Seconds that they kept an accelerator busy; of several, the busiest counts.
        lost: How many were lost through no fault of the job; being moved is not being lost.
        lost_at: When runs were lost, of those that still count, the oldest first; seconds since the Unix epoch.
        migrations: How often one went on, as the next one, on another node.
        migrated_at: When that was last, or None.
        seconds: For how long they existed, added up; since the job was resumed if it was.
        starts: What the latest of them took to get to work, the oldest first, as far as that was measured.
    """

    count: int = 0
    cpu_seconds: float = 0.0
    accelerator_seconds: float = 0.0
    lost: int = 0
    lost_at: tuple[float, ...] = ()
    migrations: int = 0
    migrated_at: float | None = None
    seconds: float = 0.0
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
