"""Recorded runs: what live experiments leave behind for the simulator to replay. The format is in ``README.md``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiercel.broker.domain.jobs import Direction, Resources, Tier
from tiercel.broker.scheduling.interface import CurvePoint
from tiercel.broker.simulation.curves import RecordedCurve
from tiercel.broker.simulation.workload import Workload

FORMAT = "tiercel-live-runs/1"

_GIB = 1024**3


class RecordingError(ValueError):
    """A recording cannot be understood; the message says where and why."""


@dataclass(frozen=True, slots=True)
class LiveJob:
    """A job of a live run.

    Attributes:
        job: Name of the recorded job that it repeats.
        arrived_at: Seconds from the start of the run.
        tier_seconds: Seconds from arrival to each tier; None for one that was not reached.
    """

    job: str
    arrived_at: float
    tier_seconds: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class LiveRun:
    """What happened live under a policy.

    Attributes:
        name: Of the run, for people.
        policy: The policy.
        options: Its options.
        interval_seconds: Of the scheduling loop.
        jobs: What was submitted.
    """

    name: str
    policy: str
    jobs: tuple[LiveJob, ...]
    options: Mapping[str, str]
    interval_seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class Recording:
    """Runs of jobs alone, and live runs of the same jobs side by side.

    Attributes:
        cpu_cores: Cores of the node.
        memory_bytes: Its memory.
        jobs: What each job does alone, by name.
        runs: What happened live.
    """

    cpu_cores: float
    memory_bytes: int
    jobs: Mapping[str, Workload]
    runs: tuple[LiveRun, ...]


def read_recording(path: Path) -> Recording:
    """Read a recording.

    Raises:
        RecordingError: The file is none, or says something that makes no sense.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        _check_format(path.name, document["format"])
        jobs = {fields["name"]: workload_from(fields) for fields in document["jobs"]}
        runs = tuple(_run_from(fields, jobs) for fields in document["runs"])
        node = document["node"]
        return Recording(float(node["cpu_cores"]), int(node.get("memory_bytes", 64 * _GIB)), jobs, runs)
    except RecordingError:
        raise
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise RecordingError(f"{path.name} is not a recording of live runs: {error!r}") from error


def _check_format(name: str, found: object) -> None:
    if found != FORMAT:
        raise RecordingError(f"{name}: the format is {found!r}, not {FORMAT!r}")


def workload_from(fields: Mapping[str, Any]) -> Workload:
    """A job's run alone, from its JSON.

    Raises:
        KeyError: A field is missing.
        TypeError: A field is of the wrong kind.
        ValueError: A field makes no sense.
    """
    points = tuple(CurvePoint(float(point["cpu_seconds"]), float(point["value"])) for point in fields["curve"])
    return Workload(
        name=str(fields["workload"]),
        curve=RecordedCurve(points),
        tiers=tuple(Tier(float(target)) for target in fields["tiers"]),
        direction=Direction(fields.get("direction", "max")),
        startup_cpu_seconds=float(fields["startup_cpu_seconds"]),
        max_epochs=len(points),
        continue_after_last_tier=bool(fields.get("continue_after_last_tier", False)),
        resources=Resources(float(fields.get("cpu_cores", 1.0)), int(fields.get("memory_bytes", _GIB))),
    )


def _run_from(fields: Mapping[str, Any], known: Mapping[str, Workload]) -> LiveRun:
    jobs = tuple(
        LiveJob(
            str(job["job"]),
            float(job["arrived_at"]),
            tuple(None if seconds is None else float(seconds) for seconds in job["tier_seconds"]),
        )
        for job in fields["jobs"]
    )
    for job in jobs:
        if job.job not in known:
            raise RecordingError(f"run {fields['name']}: job {job.job!r} was not recorded alone")
    return LiveRun(
        name=str(fields["name"]),
        policy=str(fields["policy"]),
        jobs=jobs,
        options={str(name): str(value) for name, value in fields.get("options", {}).items()},
        interval_seconds=float(fields.get("interval_seconds", 2.0)),
    )
