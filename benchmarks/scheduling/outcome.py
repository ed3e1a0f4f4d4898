"""What a run of a schedule under an arm left: everything that figures and plots are made of, as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tiercel.core.what_if import Span

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Point:
    """A report: seconds since the schedule began, the metric, CPU seconds since the job's start."""

    at_seconds: float
    value: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What became of a job. Times are seconds; those of tiers and of its end count from its submission."""

    name: str  # as in the schedule
    kind: str  # what it trained
    training_seed: int  # with which seed
    submitted_seconds: float  # when the broker accepted it, since the schedule began
    state: str  # where it ended, such as ``completed``
    reason: str  # why, in the product's words
    targets: tuple[float, ...]  # of its tiers
    reached_seconds: tuple[float | None, ...]  # when the report came that reached a tier; None if none did
    delivered_seconds: tuple[float | None, ...]  # when the tier's version began to answer
    finished_seconds: float | None  # when nothing happened to it any more, or None
    cpu_seconds: float  # CPU time that it used, start-up and exports included
    points: tuple[Point, ...]  # its reports
    # Pairs of seconds since the schedule began and the fraction of the node's CPU from then on.
    shares: tuple[tuple[float, float], ...]

    @property
    def all_delivered(self) -> bool:
        """Whether the version of each tier answered."""
        return all(each is not None for each in self.delivered_seconds)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """From what :meth:`RunOutcome.write` wrote."""
        tuples = {name: tuple(fields[name]) for name in ("targets", "reached_seconds", "delivered_seconds")}
        points = tuple(Point(*each) for each in fields["points"])
        shares = tuple((float(at), float(weight)) for at, weight in fields["shares"])
        return cls(**{**fields, **tuples, "points": points, "shares": shares})


@dataclass(frozen=True, slots=True)
class Served:
    """What an application got from the endpoints. All by whole seconds since the schedule began."""

    # Sum over endpoints of the mean of (the answer was right and within the objective); an endpoint without a version
    # counts 0, so the most there can be is the number of endpoints.
    quality: tuple[float, ...]
    satisfied: tuple[int, ...]  # endpoints whose mean delay was within the objective
    live: tuple[int, ...]  # endpoints that were asked
    requests: int  # in total
    failed: int  # of these
    p99_ms: float | None  # 99th percentile of the latency in milliseconds, or None


@dataclass(frozen=True, slots=True)
class Predicted:
    """When the broker of its own accord expected a tier, and when it came; see :class:`.Prediction`."""

    made_seconds: float  # when it was predicted, since the schedule began; what follows counts from here
    drawn: Span
    came_seconds: float | None  # None: never, as its job ended before


@dataclass(frozen=True, slots=True)
class Origin:
    """What made a run."""

    commit: str = ""  # of the whole product; ``-dirty`` behind it where files differed
    processor: str = ""  # of the machine


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A schedule under an arm."""

    arm: str  # name of the arm
    schedule: str  # name of the schedule
    repetition: int  # of the schedule
    key: str  # fingerprint of everything that was asked for; a run with another one is not this run
    setting: str  # what it has in common with other runs: the runtime and what is compared
    jobs: tuple[JobOutcome, ...]  # in the order of the schedule
    makespan_seconds: float  # from the schedule's beginning to the end of the last job
    broker_cpu_seconds: float  # CPU time of the broker while the schedule ran
    agent_cpu_seconds: float  # the same of the agent
    serving_cpu_seconds: float  # the same of the inference server
    # CPU time that the whole machine used beyond all that is named here; None if unknown.
    foreign_cpu_seconds: float | None
    steal_seconds: float  # CPU time that the machine's host withheld
    timed_out: bool  # whether the jobs were not done in time
    left_over: int  # how many processes had to be killed after the product had stopped
    errors: int  # what the broker's log told as an error, such as a plan that could not be carried out
    served: Served | None = None  # what an application got, if one ran
    predictions: tuple[Predicted, ...] = ()  # that were settled, the oldest first
    origin: Origin = Origin()  # what made it

    @property
    def block(self) -> str:
        """The schedule and its repetition."""
        return f"{self.schedule}-{self.repetition}"

    @property
    def complete(self) -> bool:
        """Whether every tier of every job was delivered and every job came to its end."""
        done = all(job.all_delivered and job.finished_seconds is not None for job in self.jobs)
        return done and not self.timed_out

    def write(self, path: Path) -> None:
        """Write as JSON, in one step."""
        document = dataclasses.asdict(self)
        for job in document["jobs"]:
            job["points"] = [list(point.values()) for point in job["points"]]
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(document, allow_nan=False), encoding="utf-8")
        temporary.replace(path)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what :meth:`write` wrote.

        Raises:
            ValueError: The file is none of these.
        """
        try:
            document: Json = json.loads(path.read_text(encoding="utf-8"))
            served = document["served"]
            if served is not None:
                document["served"] = Served(**{**served, **{name: tuple(served[name]) for name in _BY_SECOND}})
            document["jobs"] = tuple(JobOutcome.from_json(job) for job in document["jobs"])
            document["predictions"] = tuple(
                Predicted(**{**each, "drawn": Span(**each["drawn"])}) for each in document["predictions"]
            )
            return cls(**{**document, "origin": Origin(**document["origin"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path.name} does not hold a run's outcome ({error!r})") from error


_BY_SECOND = ("quality", "satisfied", "live")
