"""What a check is, what it finds, and how checks are run one after the other within a time. Knows no accelerator."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from benchmarks.results import Bar

Json = dict[str, Any]


class CheckError(Exception):
    """A check cannot go on; the message says why, for whoever runs it."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table."""

    what: str  # was measured
    value: str = ""  # as people read it; empty for what was not run
    bar: Bar | None = None  # what it has to be, if anything
    note: str = ""  # what else is to be known; for what was not run, or failed, why
    failed: bool = False  # whether the check broke

    @property
    def verdict(self) -> str:
        """In a word or two; empty for a figure that is only told."""
        if self.failed:
            return "FAILED"
        if not self.value:
            return "not run"
        if self.bar is None:
            return ""
        return "holds" if self.bar.holds else "MISSED"

    @property
    def goal(self) -> str:
        """What it has to be, with its unit; empty for a figure that is only told."""
        return f"{self.bar.goal} {self.bar.unit}".rstrip() if self.bar is not None else ""


@dataclass(slots=True)
class Findings:
    """What a check found so far; what it was cut short in stays."""

    rows: list[Row] = field(default_factory=list)  # for the table
    figures: Json = field(default_factory=dict)  # for the result file; JSON types

    def add(self, what: str, value: float | None, unit: str = "", goal: str = "", note: str = "") -> None:
        """Take in a figure.

        Args:
            what: Was measured.
            value: What came out; None when there was nothing to measure, which does not hold.
            unit: Of the value.
            goal: What it has to be, such as ``<= 3``; empty for a figure that is only told.
            note: What else is to be known.
        """
        rounded = None if value is None else round(value, 4)
        bar = Bar(what, rounded, goal, unit) if goal else None
        shown = "not measured" if value is None else f"{value:,.4g} {unit}".rstrip()
        self.rows.append(Row(what, shown, bar, note))


def bars_of(figures: Json) -> list[Bar]:
    """What an accelerator has to show: each figure with a goal, as it was measured."""
    return [Bar(row["what"], row["value"], row["goal"], row["unit"]) for row in figures["measured"]]


@dataclass(slots=True)
class Setting:
    """What all checks are given."""

    device: str  # ``cuda`` or ``cpu``
    quick: bool  # whether a little is enough: to see that it works, and not how well
    folder: Path  # for logs and whatever they write
    tell: Callable[[str], None]  # takes a line for people about each step
    facts: Mapping[str, Any]  # what this machine's Python can do; see :mod:`benchmarks.gpu_check.facts`
    # Of the training alone, once that was measured; later checks size their work by it.
    steps_per_second: float | None = None

    @property
    def memory_bytes(self) -> int:
        """Memory of the device; 0 where there is none."""
        device = self.facts.get("device") or {}
        return int(device.get("memory_bytes", 0)) if self.device == "cuda" else 0


@dataclass(frozen=True, slots=True)
class Check:
    """One of the checks."""

    name: str  # in a word; the module of this package with its ``run(setting, findings)``
    about: str  # for people
    seconds: float  # its part of the whole time, when that is :data:`WHOLE_SECONDS`
    needs: Mapping[str, str]  # what has to be installed: modules, and what to ``pip install`` for them

    def missing(self) -> str:
        """What is not installed, as a sentence; empty when nothing is missing."""
        names = [package for module, package in self.needs.items() if not _is_installed(module)]
        return f"needs: pip install {' '.join(names)}" if names else ""

    async def run(self, setting: Setting, findings: Findings) -> None:
        """Run it; its module is loaded only now, so that what is not there hinders no other check."""
        module = importlib.import_module(f"benchmarks.gpu_check.{self.name}")
        await cast("Callable[[Setting, Findings], Awaitable[None]]", module.run)(setting, findings)


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it would be in
        return False


WHOLE_SECONDS = 450.0
"""All checks together, on a machine with an accelerator."""


async def run_checks(
    checks: Sequence[Check], setting: Setting, seconds: float, found: dict[str, Findings] | None = None
) -> dict[str, Findings]:
    """Run checks one after the other; none of them can break another, or take its time.

    Args:
        checks: In order.
        setting: For all of them.
        seconds: For all of them; each gets its part, and what those before it left over.
        found: Where findings go, by check; there as they come, for whoever stops this in the middle.
    """
    found = {} if found is None else found
    end = time.monotonic() + seconds
    for number, check in enumerate(checks):
        later = kept_for(checks[number + 1 :], checks, seconds)
        findings = found[check.name] = Findings()
        await _run(check, setting, findings, end - time.monotonic() - later)
    return found


def kept_for(later: Sequence[Check], checks: Sequence[Check], seconds: float) -> float:
    """Seconds that are kept for the checks that come later; those that cannot be run need none.

    Args:
        later: These.
        checks: All of them.
        seconds: For all of them.
    """
    needed = sum(check.seconds for check in later if not check.missing())
    return needed * seconds / sum(check.seconds for check in checks)


async def _run(check: Check, setting: Setting, findings: Findings, seconds: float) -> None:
    if missing := check.missing():
        findings.rows.append(Row(check.about, note=missing))
        return
    setting.tell(f"{check.name}: {check.about}")
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            await check.run(setting, findings)
    except Exception as error:  # whatever breaks one check must not hide what the others find
        note = f"cut short after {seconds:.0f} s (--minutes)" if limit.expired() else explain(error)
        findings.rows.append(Row(check.about, note=note, failed=True))


def explain(error: BaseException) -> str:
    """An error in a line; of a group the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, CheckError) else f"{type(error).__name__}: {text}"
