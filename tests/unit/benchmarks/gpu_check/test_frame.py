"""Checks that hold, break, take too long or cannot be run: none of them hinders the next."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.gpu_check.checks import CHECKS
from benchmarks.gpu_check.frame import Check, CheckError, Findings, Row, Setting, kept_for, run_checks

Run = Callable[[Setting, Findings], Awaitable[None]]


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting("cpu", quick=True, folder=tmp_path, tell=lambda line: None, facts={})


def install(monkeypatch: pytest.MonkeyPatch, name: str, run: Run) -> Check:
    """A check of that name whose module has this ``run``."""
    module = ModuleType(f"benchmarks.gpu_check.{name}")
    module.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return Check(name, f"what {name} is about", 10, {})


async def fine(_setting: Setting, findings: Findings) -> None:
    findings.add("it", 1.0, "s", "<= 2")


def verdicts(findings: Findings) -> list[str]:
    return [row.verdict for row in findings.rows]


async def test_a_check_that_breaks_keeps_what_it_found_and_the_next_one_runs(
    monkeypatch: pytest.MonkeyPatch, setting: Setting
) -> None:
    async def breaks(_setting: Setting, findings: Findings) -> None:
        findings.add("before", 3.0, "s", "<= 2")
        raise CheckError("there was no answer")

    checks = [install(monkeypatch, "breaks", breaks), install(monkeypatch, "fine", fine)]
    found = await run_checks(checks, setting, 60.0)
    assert verdicts(found["breaks"]) == ["MISSED", "FAILED"]
    assert found["breaks"].rows[-1].note == "there was no answer"
    assert verdicts(found["fine"]) == ["holds"]


async def test_an_error_of_any_kind_in_a_group_of_tasks_is_told_by_its_first(
    monkeypatch: pytest.MonkeyPatch, setting: Setting
) -> None:
    async def breaks(_setting: Setting, _findings: Findings) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(3600))
            raise KeyError("addresses")

    found = await run_checks([install(monkeypatch, "breaks", breaks)], setting, 60.0)
    assert found["breaks"].rows[0].note == "KeyError: 'addresses'"


async def test_a_check_that_takes_too_long_is_cut_short_and_leaves_the_others_their_time(
    monkeypatch: pytest.MonkeyPatch, setting: Setting
) -> None:
    async def hangs(_setting: Setting, _findings: Findings) -> None:
        await asyncio.Event().wait()

    found = await run_checks(
        [install(monkeypatch, "hangs", hangs), install(monkeypatch, "fine", fine)], setting, seconds=0.5
    )
    assert verdicts(found["hangs"]) == ["FAILED"]
    assert "cut short" in found["hangs"].rows[0].note
    assert verdicts(found["fine"]) == ["holds"]


async def test_what_is_not_installed_is_named_and_the_check_is_not_loaded(setting: Setting) -> None:
    needs = {"json": "json", "no_such_module": "no-such-package", "no_such.module": "another-package"}
    found = await run_checks([Check("no_such_check", "something", 1, needs)], setting, 60.0)
    assert found["no_such_check"].rows == [Row("something", note="needs: pip install no-such-package another-package")]
    assert verdicts(found["no_such_check"]) == ["not run"]


def test_no_time_is_kept_for_what_cannot_be_run() -> None:
    missing = Check("missing", "", 30, {"no_such_module": "no-such-package"})
    checks = [Check("first", "", 20, {}), missing, Check("last", "", 50, {})]
    assert kept_for(checks[1:], checks, 200.0) == 100.0
    assert kept_for([missing], checks, 200.0) == 0.0


async def test_who_stops_it_has_what_was_found_until_then(monkeypatch: pytest.MonkeyPatch, setting: Setting) -> None:
    begun = asyncio.Event()

    async def hangs(_setting: Setting, findings: Findings) -> None:
        findings.add("before", 1.0, "s", "<= 2")
        begun.set()
        await asyncio.Event().wait()

    found: dict[str, Findings] = {}
    checks = [install(monkeypatch, "fine", fine), install(monkeypatch, "hangs", hangs)]
    running = asyncio.create_task(run_checks(checks, setting, 60.0, found))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert {name: verdicts(findings) for name, findings in found.items()} == {"fine": ["holds"], "hangs": ["holds"]}


def test_a_figure_without_a_goal_is_only_told_and_one_that_is_missing_does_not_hold() -> None:
    findings = Findings()
    findings.add("told", 1234.5, "ms")
    findings.add("missing", None, "s", "<= 5")
    assert [(row.value, row.verdict, row.goal) for row in findings.rows] == [
        ("1,234 ms", "", ""),
        ("not measured", "MISSED", "<= 5 s"),
    ]


def test_every_check_has_a_module_and_all_together_fit_into_eight_minutes() -> None:
    folder = Path(sys.modules[Check.__module__].__file__ or "").parent
    assert [check.name for check in CHECKS if not (folder / f"{check.name}.py").exists()] == []
    assert sum(check.seconds for check in CHECKS) <= 450
