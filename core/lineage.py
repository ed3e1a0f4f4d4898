"""Where a version comes from: the job and the run that trained it, from what, with what, and how well it learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from tiercel.core.jobs import Direction
from tiercel.core.jsonable import Jsonable

MAX_CURVE_POINTS = 200
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CurvePoint(Jsonable):
    """A report of the metric.

    Attributes:
        epoch: The training epoch that it is about.
        value: The metric.
        seconds: Seconds after the job's submission.
        cpu_seconds: CPU seconds that the job had used by then.
    """

    epoch: int
    value: float
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Lineage(Jsonable):
    """Where a version comes from. What nobody knows any more is empty.

    Attributes:
        endpoint: The endpoint.
        version: Its number there.
        variant: The variant that it is a version of, or empty.
        tier: The tier that it fulfils; 0 for a model that is better than those of the tiers.
        model_sha256: Of the ONNX file, hexadecimal.
        delivered_at: When it was delivered.
        live: Whether it shall answer.
        pinned: Whether it does because somebody chose it.
        kept: Whether its files are kept.
        held: Why it was not let answer when it was delivered, or empty.
        metric: Name of the metric.
        direction: Whether a larger or a smaller one is better, or None.
        value: The metric re-measured on the exported model, or as whoever deployed it said; None where nobody did.
        metrics: All that the script reported with the weights that were handed over, the best until then.
        job_id: The job.
        job_name: Its name.
        labels: Its labels.
        run_id: The run.
        node_id: The node that has the version's files.
        submitted_at: When the job was submitted, or None.
        script: File name of its program, or empty.
        script_sha256: Of its content, hexadecimal, or empty.
        module: Its program as an installed module, or empty.
        command: Its program as a command line, or empty.
        image: Its container image, or empty.
        project_sha256: Of the project that it ran from, hexadecimal, or empty.
        commit: The git commit that was checked out there, or empty.
        dirty: Whether files differed from that commit.
        arguments: Command-line arguments.
        env: Variables that the spec gave it.
        data: Names of the data sets that it read; of those that URLs name with the URL and the SHA-256 of what came.
        requirements: Packages that it asked for.
        environment: Key, by content, of the environment that its run had of them on its node, or empty.
        image_id: Id of the image that its run was a container of, or empty.
        warm_start: The job with whose weights its training began, or empty.
        deployed_by: Who deployed it as a file; empty of what a job trained.
        file: The name of that file, or empty.
        curve: Reports of the metric up to the delivery, the oldest first, thinned.
    """

    endpoint: str
    version: int
    job_id: str
    tier: int
    metric: str
    value: float | None
    delivered_at: datetime
    model_sha256: str
    variant: str = ""
    live: bool = False
    pinned: bool = False
    kept: bool = False
    held: str = ""
    direction: Direction | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    job_name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    run_id: str = ""
    node_id: str = ""
    submitted_at: datetime | None = None
    script: str = ""
    script_sha256: str = ""
    module: str = ""
    command: tuple[str, ...] = ()
    image: str = ""
    project_sha256: str = ""
    commit: str = ""
    dirty: bool = False
    arguments: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    data: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    environment: str = ""
    image_id: str = ""
    warm_start: str = ""
    deployed_by: str = ""
    file: str = ""
    curve: tuple[CurvePoint, ...] = ()


def thinned(points: Sequence[T], at_most: int) -> tuple[T, ...]:
    """Some of the points, spread evenly, the first and the last among them."""
    if len(points) <= at_most:
        return tuple(points)
    step = (len(points) - 1) / (at_most - 1)
    return tuple(points[round(index * step)] for index in range(at_most))
