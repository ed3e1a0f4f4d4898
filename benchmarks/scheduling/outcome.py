"""What a run of a schedule under an arm left: everything that figures and plots are made of, as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Point:
    """A report: seconds since the schedule began, the metric, CPU seconds since the job's start."""

    at_seconds: float
    value: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What became of a job. Times are seconds; those of tiers and of its end count from its submission.

    Attributes:
        name: As in the schedule.
        kind: What it trained.
        training_seed: With which seed.
        submitted_seconds: When the broker accepted it, since the schedule began.
        state: Where it ended, such as ``completed``.
        reason: Why, in the product's words.
        targets: Of its tiers.
        reached_seconds: When the report came that reached a tier; None if none did.
        delivered_seconds: When the tier's version began to answer.
        finished_seconds: When nothing happened to it any more, or None.
        cpu_seconds: CPU time that it used, start-up and exports included.
        points: Its reports.
        shares: Pairs of seconds since the schedule began and the fraction of the node's CPU from then on.
    """

    name: str
    kind: str
    training_seed: int
    submitted_seconds: float
    state: str
    reason: str
    targets: tuple[float, ...]
    reached_seconds: tuple[float | None, ...]
    delivered_seconds: tuple[float | None, ...]
    finished_seconds: float | None
    cpu_seconds: float
    points: tuple[Point, ...]
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
    """What an application got from the endpoints. All by whole seconds since the schedule began.

    Attributes:
        quality: Sum over endpoints of the mean of (the answer was right and within the objective); an endpoint without
            a version counts 0, so the most there can be is the number of endpoints.
        satisfied: Endpoints whose mean delay was within the objective.
        live: Endpoints that were asked.
        requests: In total.
        failed: Of these.
        p99_ms: 99th percentile of the latency in milliseconds, or None.
    """

    quality: tuple[float, ...]
    satisfied: tuple[int, ...]
    live: tuple[int, ...]
    requests: int
    failed: int
    p99_ms: float | None


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A schedule under an arm.

    Attributes:
        arm: Name of the arm.
        schedule: Name of the schedule.
        repetition: Of the schedule.
        key: Fingerprint of everything that was asked for; a run with another one is not this run.
        setting: What it has in common with other runs: the runtime and the code that was measured.
        jobs: In the order of the schedule.
        makespan_seconds: From the schedule's beginning to the end of the last job.
        broker_cpu_seconds: CPU time of the broker while the schedule ran.
        agent_cpu_seconds: The same of the agent.
        serving_cpu_seconds: The same of the inference server.
        foreign_cpu_seconds: CPU time that the whole machine used beyond all that is named here; None if unknown.
        steal_seconds: CPU time that the machine's host withheld.
        timed_out: Whether the jobs were not done in time.
        left_over: How many processes had to be killed after the product had stopped.
        errors: What the broker's log told as an error, such as a plan that could not be carried out.
        served: What an application got, if one ran.
    """

    arm: str
    schedule: str
    repetition: int
    key: str
    setting: str
    jobs: tuple[JobOutcome, ...]
    makespan_seconds: float
    broker_cpu_seconds: float
    agent_cpu_seconds: float
    serving_cpu_seconds: float
    foreign_cpu_seconds: float | None
    steal_seconds: float
    timed_out: bool
    left_over: int
    errors: int
    served: Served | None = None

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
            return cls(**{**document, "jobs": tuple(JobOutcome.from_json(job) for job in document["jobs"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path.name} does not hold a run's outcome ({error!r})") from error


_BY_SECOND = ("quality", "satisfied", "live")
