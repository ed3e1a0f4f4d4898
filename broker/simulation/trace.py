"""Jobs from a trace file: CSV with the time of submission, work, tiers and resources of each job."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from tiercel.broker.simulation.curves import Family, FamilyCurve
from tiercel.broker.simulation.workload import ListedJobs, PlannedJob, Workload
from tiercel.core.jobs import Resources, Tier

REQUIRED = ("submit_seconds", "work_cpu_seconds", "tiers")
OPTIONAL = (
    "cpu_cores",
    "memory_gib",
    "startup_cpu_seconds",
    "name",
    "family",
    "accelerators",
    "accelerator_memory_bytes",
    "accelerator_intensity",
)

_GIB = 1024**3
_REPORTS = 20
# Which part of the way from 0 to its plateau a job has gone at its last tier; more training would not change much.
_GAIN_AT_LAST_TIER = 0.985

_ValueT = TypeVar("_ValueT")


class TraceError(ValueError):
    """A trace cannot be understood; the message names row and column."""


def read_trace(path: Path) -> ListedJobs:
    """Read jobs from a CSV file with a header.

    Columns: ``submit_seconds`` (since the trace's beginning), ``work_cpu_seconds`` (of training until the last tier),
    ``tiers`` (rising targets in (0, 1), separated by semicolons) and, if wanted, ``cpu_cores``, ``memory_gib``,
    ``startup_cpu_seconds``, ``name`` (equal names train the same thing), ``family`` (of the learning curve),
    ``accelerators`` (devices used at once), ``accelerator_memory_bytes`` (on each; 0: all of it) and
    ``accelerator_intensity`` (seconds of each device per CPU second of work; 1 where only devices are given).

    Raises:
        TraceError: Something in it makes no sense; says where.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path.name} cannot be read: {error}") from error
    rows = csv.DictReader(text.splitlines(), restval="", restkey="")
    missing = [name for name in REQUIRED if name not in (rows.fieldnames or ())]
    if missing:
        raise TraceError(f"{path.name}: the header lacks the column {missing[0]}; it needs {', '.join(REQUIRED)}")
    unknown = [name for name in rows.fieldnames or () if name not in (*REQUIRED, *OPTIONAL)]
    if unknown:
        raise TraceError(f"{path.name}: the column {unknown[0]!r} is unknown; there are also {', '.join(OPTIONAL)}")
    # rows.line_num is the line just read: what an editor shows.
    jobs = tuple(_Row(path.name, rows.line_num, row).job() for row in rows)
    return ListedJobs(tuple(sorted(jobs, key=lambda job: job.arrives_at)))


class _Row:
    def __init__(self, file: str, number: int, cells: Mapping[str, str]) -> None:
        self._where = f"{file}, row {number}"
        self._cells = cells

    def job(self) -> PlannedJob:
        if "" in self._cells:
            raise TraceError(f"{self._where}: it has more cells than the header has columns")
        tiers = self._read("tiers", _tiers)
        work = self._read("work_cpu_seconds", _positive)
        name = self._cells.get("name", "").strip() or f"{self._cells['tiers']} in {work:g}"
        unit = FamilyCurve(self._read("family", Family, "exponential"), 0.0, tiers[-1] / _GAIN_AT_LAST_TIER, 1.0)
        to_last = unit.work_to(tiers[-1]) or 1.0
        devices = self._read("accelerators", _whole, "0")
        workload = Workload(
            name=name,
            curve=FamilyCurve(unit.family, unit.start, unit.plateau, work / to_last),
            tiers=tuple(Tier(target) for target in tiers),
            startup_cpu_seconds=self._read("startup_cpu_seconds", _not_negative, "0"),
            epoch_cpu_seconds=work / _REPORTS,
            # One more than needed, for what floating point leaves of the last one.
            max_epochs=_REPORTS + 1,
            resources=Resources(
                cpu_cores=self._read("cpu_cores", _positive, "1"),
                memory_bytes=round(self._read("memory_gib", _positive, "2") * _GIB),
                accelerators=devices,
                accelerator_memory_bytes=self._read("accelerator_memory_bytes", _whole, "0"),
            ),
            accelerator_intensity=self._intensity(devices),
        )
        return PlannedJob(self._read("submit_seconds", _not_negative), workload, name=name)

    def _intensity(self, devices: int) -> float:
        intensity = self._read("accelerator_intensity", _not_negative, "1" if devices else "0")
        if intensity > 0 and not devices:
            raise TraceError(
                f"{self._where}, column accelerator_intensity: {intensity:g} needs a number of accelerators"
            )
        return intensity

    def _read(self, column: str, convert: Callable[[str], _ValueT], default: str = "") -> _ValueT:
        text = self._cells.get(column, "").strip() or default
        try:
            return convert(text)
        except ValueError as error:
            raise TraceError(f"{self._where}, column {column}: {text!r} {_words(column, error)}") from error


def _words(column: str, error: ValueError) -> str:
    if column == "family":
        return f"is none of {', '.join(family.value for family in Family)}"
    return str(error) if isinstance(error, _CellError) else "is not a number"


class _CellError(ValueError):
    """Says what is wrong in words that follow the cell's text."""


def _not_negative(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value >= 0):
        raise _CellError("is not a number of at least 0")
    return value


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise _CellError("is not a whole number of at least 0")
    return int(text)


def _positive(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise _CellError("is not a positive number")
    return value


def _tiers(text: str) -> tuple[float, ...]:
    targets = tuple(float(part) for part in text.split(";"))
    if any(not 0 < target < 1 for target in targets) or list(targets) != sorted(set(targets)):
        raise _CellError("are not rising targets between 0 and 1, separated by semicolons")
    return targets
