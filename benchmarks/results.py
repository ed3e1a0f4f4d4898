"""What benchmarks leave behind: one JSON file each, with the commit, the machine, versions, raw figures and bars.

Bars are never written down by a benchmark: its judge (``judges.py``) derives them from the figures, when the file is
written and again whenever it is read.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import operator
import os
import platform
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from benchmarks.judges import JUDGES

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "benchmarks" / "results"
"""Result files that are part of the project: written with ``--keep`` only."""
BUILD = ROOT / "build" / "results"
"""Where every other run leaves its result file."""

RESULTS_HELP = "Folder of the result file; build/results when left out."
KEEP_HELP = "Write the result file, and what documents show of it, into the project."

DISTRIBUTIONS = ("tiercel", "torch", "onnx", "onnxruntime", "numpy", "grpcio", "aiohttp", "aiomqtt", "protobuf")

Json = dict[str, Any]

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "==": operator.eq,
}
_GIT_SECONDS = 10.0
_DIGITS = 1e-6
_GOAL = re.compile(r"(<=|>=|<|>|==)\s*(-?[0-9.]+(?:[eE][+-]?[0-9]+)?)")


class ResultFileError(ValueError):
    """A result file, or a goal in one, cannot be understood."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure that was measured and what it has to be.

    Raises:
        ResultFileError: The goal is not a comparison and a number.
    """

    name: str  # what was measured, in a few words
    value: float | None  # what came out, or None when there was nothing to measure; that does not hold
    goal: str  # a comparison and a number, such as ``<= 2.0``
    unit: str = ""  # of both, such as ``s``; empty for plain numbers

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
    """What a result file says."""

    name: str  # of the benchmark
    made_at: str  # when, ISO 8601 in UTC
    commit: str  # what it was made of, ``-dirty`` behind it where files differed; empty where the file does not say
    command: str  # what makes it again
    figures: Json  # everything measured
    bars: tuple[Bar, ...]  # as they stand in the file, in its order


def folder_of(given: Path | None = None, *, keep: bool = False) -> Path:
    """Where a benchmark puts its result file: into the project only when it was asked to."""
    return KEPT if keep else given or BUILD


def write_result(name: str, *, command: str, figures: Mapping[str, Any], folder: Path = BUILD) -> Result:
    """Write ``NAME.json`` into a folder of results, replacing an older one.

    Args:
        name: Of the benchmark, also the file's.
        command: What a reader types to make it again, such as ``make demo``.
        figures: Everything measured, as JSON types without NaN and infinity.
        folder: Where to write.

    Raises:
        ValueError: A figure is NaN or infinite.
        ResultFileError: Nobody judges results of this name.
    """
    written: Json = json.loads(json.dumps(dict(figures), allow_nan=False))
    result = Result(name, _now(), commit(), command, written, judged(name, written))
    write_again(result, {"machine": describe_machine(), "versions": describe_versions()}, folder)
    return result


def write_again(result: Result, about: Mapping[str, Any], folder: Path) -> None:
    """Put a result into its file in one step."""
    document = {
        "name": result.name,
        "made_at": result.made_at,
        "commit": result.commit,
        "command": result.command,
        **about,
        "figures": result.figures,
        "bars": [bar.to_json() for bar in result.bars],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = path_of(result, folder)
    temporary = path.with_suffix(".json.new")
    temporary.write_text(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)


def path_of(result: Result, folder: Path) -> Path:
    """The file of a result."""
    return folder / f"{result.name}.json"


def read_result(path: Path) -> Result:
    """Read a result file.

    Raises:
        ResultFileError: It is none.
    """
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        return Result(
            str(fields["name"]),
            str(fields["made_at"]),
            str(fields.get("commit", "")),
            str(fields["command"]),
            dict(fields["figures"]),
            tuple(Bar.from_json(bar) for bar in fields["bars"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ResultFileError(f"{path.name} is not a result file ({error!r})") from error


def read_about(path: Path) -> Json:
    """Machine and versions of a result file that :func:`read_result` could read."""
    fields = json.loads(path.read_text(encoding="utf-8"))
    return {name: fields[name] for name in ("machine", "versions")}


def read_results(folder: Path = KEPT) -> tuple[Result, ...]:
    """All results of a folder, by name.

    Raises:
        ResultFileError: A file there is none.
    """
    return tuple(read_result(path) for path in sorted(folder.glob("*.json")))


def judged(name: str, figures: Json) -> tuple[Bar, ...]:
    """What figures come to, by the judge of this result.

    Raises:
        ResultFileError: Nobody judges results of this name, a figure is missing, or two bars have one name.
    """
    if name not in JUDGES:
        raise ResultFileError(f"no benchmark makes a result {name!r}; name its judge in benchmarks/judges.py")
    module, _, function = JUDGES[name].partition(":")
    try:
        bars = tuple(getattr(import_module(module), function)(figures))
    except KeyError as error:
        raise ResultFileError(f"the result {name!r} lacks the figure {error}") from error
    if len({bar.name for bar in bars}) < len(bars):
        raise ResultFileError(f"two bars of the result {name!r} have one name")
    return bars


def differences(result: Result) -> list[str]:
    """Where the bars in a result's file are not those that its figures give, in words.

    Raises:
        ResultFileError: Nobody judges results of this name.
    """
    written, derived = ({bar.name: bar for bar in bars} for bars in (result.bars, judged(result.name, result.figures)))
    missing = [f"the file lacks the bar {name!r}" for name in derived if name not in written]
    extra = [f"nothing in the figures gives the bar {name!r}" for name in written if name not in derived]
    changed = [
        f"{name!r} is {_shown(written[name])} in the file, and {_shown(bar)} by its figures"
        for name, bar in derived.items()
        if name in written and not (_same(written[name].value, bar.value) and written[name].goal == bar.goal)
    ]
    return [*missing, *extra, *changed]


def _shown(bar: Bar) -> str:
    return f"{'nothing' if bar.value is None else format(bar.value, '.6g')} (goal {bar.goal})"


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=_DIGITS, abs_tol=_DIGITS)


def commit() -> str:
    """The commit that this checkout is at, with ``-dirty`` where files differ from it; empty outside of a checkout."""
    # Result files themselves are what a run is there to change.
    command = ["git", "status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results", ":!docs"]
    try:
        head = _git(["git", "rev-parse", "--short=12", "HEAD"])
        return f"{head}-dirty" if _git(command) else head
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(command: list[str]) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=_GIT_SECONDS)
    return done.stdout.strip()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


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
