"""What a job's script has reported, as values, as a pandas data frame, and as a picture in a notebook."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tiercel.core.errors import SetupError, wrong_field
from tiercel.core.html import detail, picture
from tiercel.core.jsonable import Jsonable
from tiercel.core.lineage import CurvePoint
from tiercel.core.views import JobEvent, JobInfo, ProgressEvent

if TYPE_CHECKING:
    from pandas import DataFrame

MOST_REPORTS = 10_000


@dataclass(frozen=True, slots=True)
class Curve(Jsonable):
    """How well a job learned.

    Attributes:
        job: The job, as it was when it was asked for.
        reports: What its script reported, the oldest first.
    """

    job: JobInfo
    reports: tuple[ProgressEvent, ...]

    @property
    def points(self) -> tuple[CurvePoint, ...]:
        """The metric that the tiers are about."""
        return tuple(
            CurvePoint(report.epoch, report.value, seconds, report.cpu_seconds) for seconds, report in self._timed()
        )

    def to_frame(self) -> DataFrame:
        """A row for each report: job, epoch, seconds after the submission, what it used, and a column for each metric.

        Raises:
            SetupError: pandas is not installed.
        """
        return pandas().DataFrame(
            {
                **report.metrics,
                "job": self.job.id,
                "epoch": report.epoch,
                "seconds": seconds,
                "cpu_seconds": report.cpu_seconds,
                "accelerator_seconds": report.accelerator_seconds,
            }
            for seconds, report in self._timed()
        )

    def _timed(self) -> Iterator[tuple[float, ProgressEvent]]:
        return ((max(0.0, (each.at - self.job.submitted_at).total_seconds()), each) for each in self.reports)

    def _repr_html_(self) -> str:
        """The curve with its tiers, for notebooks."""
        spec = self.job.spec
        values = [(point.seconds, point.value) for point in self.points]
        shown = {"job": self.job.id, "metric": spec.metric, "reports": len(values), "best": self.job.best_value}
        return picture(values, [tier.target for tier in spec.tiers]) + detail(spec.name, shown)


def check_limit(limit: int) -> None:
    """Whether so many reports may be asked for.

    Raises:
        InvalidSpecError: They may not.
    """
    if not 1 <= limit <= MOST_REPORTS:
        raise wrong_field("limit", f"{limit} is not a number of reports; give 1 to {MOST_REPORTS}")


async def curve_of(job: JobInfo, events: AsyncIterable[JobEvent], limit: int) -> Curve:
    """The newest ``limit`` reports among the events of a job."""
    reports: deque[ProgressEvent] = deque(maxlen=limit)
    async for event in events:
        if isinstance(event, ProgressEvent):
            reports.append(event)
    return Curve(job, tuple(reports))


def pandas() -> Any:
    """The package, imported now.

    Raises:
        SetupError: It is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise SetupError("pandas is not installed; run: pip install 'tiercel[notebook]'") from error
    return pd
