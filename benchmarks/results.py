"""What benchmarks leave behind: one JSON file each, with the machine, versions, raw figures and bars."""

from __future__ import annotations

import importlib.metadata
import json
import math
import operator
import os
import platform
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

RESULTS = Path(__file__).parent / "results"
"""Where result files are kept."""

DISTRIBUTIONS = ("tiercel", "torch", "onnx", "onnxruntime", "numpy", "grpcio", "aiohttp", "aiomqtt", "protobuf")

Json = dict[str, Any]

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "==": operator.eq,
}
_GOAL = re.compile(r"(<=|>=|<|>|==)\s*(-?[0-9.]+(?:[eE][+-]?[0-9]+)?)")


class ResultFileError(ValueError):
    """A result file, or a goal in one, cannot be understood."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure that was measured and what it has to be.

    Attributes:
        name: What was measured, in a few words.
        value: What came out, or None when there was nothing to measure; that does not hold.
        goal: A comparison and a number, such as ``<= 2.0``.
        unit: Of both, such as ``s``; empty for plain numbers.

    Raises:
        ResultFileError: The goal is not a comparison and a number.
    """

    name: str
    value: float | None
    goal: str
    unit: str = ""

    def __post_init__(self) -> None:
        if not _GOAL.fullmatch(self.goal):
            raise ResultFileError(f"{self.goal!r} is not a goal; write a comparison and a number, such as '<= 2.0'")

    @property
    def holds(self) -> bool:
        """Whether the value is as the goal asks."""
        match = _GOAL.fullmatch(self.goal)
        if match is None or self.value is None or math.isnan(self.value):
            return False
        return _COMPARISONS[match[1]](self.value, float(match[2]))

    def to_json(self) -> Json:
        """As it stands in a result file."""
        value = self.value if self.value is not None and math.isfinite(self.value) else None
        return {"name": self.name, "value": value, "goal": self.goal, "unit": self.unit, "holds": self.holds}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """From a result file; whether it holds is worked out again.

        Raises:
            ResultFileError: A field is missing or of the wrong kind.
        """
        try:
            value = fields["value"]
            return cls(
                name=str(fields["name"]),
                value=None if value is None else float(value),
                goal=str(fields["goal"]),
                unit=str(fields.get("unit", "")),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ResultFileError(f"a bar cannot be understood ({error!r}): {fields!r}") from error


@dataclass(frozen=True, slots=True)
class Result:
    """What a result file says, as far as bars need it.

    Attributes:
        name: Of the benchmark.
        made_at: When, ISO 8601 in UTC.
        command: What makes it again.
        bars: In the order of the file.
    """

    name: str
    made_at: str
    command: str
    bars: tuple[Bar, ...]


def write_result(
    name: str, *, command: str, figures: Mapping[str, Any], bars: Iterable[Bar], folder: Path = RESULTS
) -> Path:
    """Write ``NAME.json`` into the folder of results, replacing an older one.

    Args:
        name: Of the benchmark, also the file's.
        command: What a reader types to make it again, such as ``make demo``.
        figures: Everything measured, as JSON types without NaN and infinity.
        bars: What it has to be.
        folder: Where to write.

    Raises:
        ValueError: A figure is NaN or infinite.
    """
    document = {
        "name": name,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "command": command,
        "machine": describe_machine(),
        "versions": describe_versions(),
        "figures": dict(figures),
        "bars": [bar.to_json() for bar in bars],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    temporary = path.with_suffix(".json.new")
    temporary.write_text(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)
    return path


def read_result(path: Path) -> Result:
    """Read a result file.

    Raises:
        ResultFileError: It is none.
    """
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        bars = tuple(Bar.from_json(bar) for bar in fields["bars"])
        return Result(str(fields["name"]), str(fields["made_at"]), str(fields["command"]), bars)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ResultFileError(f"{path.name} is not a result file ({error!r})") from error


def read_results(folder: Path = RESULTS) -> tuple[Result, ...]:
    """All results of a folder, by name.

    Raises:
        ResultFileError: A file there is none.
    """
    return tuple(read_result(path) for path in sorted(folder.glob("*.json")))


def describe_machine() -> Json:
    """The machine as far as figures depend on it; nothing that names it or its users."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count() or 1,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "cgroup": _cgroup_version(),
    }


def describe_versions() -> dict[str, str]:
    """Python's version and those of the libraries that figures depend on, as far as they are installed."""
    versions = {"python": platform.python_version()}
    for name in DISTRIBUTIONS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _cgroup_version() -> str:
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        return "v2"
    if Path("/sys/fs/cgroup/cpu").exists() or Path("/sys/fs/cgroup/cpu,cpuacct").exists():
        return "v1"
    return "none"
