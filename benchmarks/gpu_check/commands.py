"""The command: ``python -m benchmarks.gpu_check [--device cuda|cpu] [--quick] [--only NAMES] [--json]``."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.gpu_check import facts
from benchmarks.gpu_check.checks import CHECKS
from benchmarks.gpu_check.frame import WHOLE_SECONDS, Check, Findings, Json, Row, Setting, run_checks
from benchmarks.gpu_check.tables import Teller, print_table, summary
from benchmarks.results import KEEP_HELP, folder_of, path_of, write_result

NAME = "gpu-check"
COMMAND = "make gpu-check"
SEE = "see"
"""The check that needs nothing, and tells what there is."""

MISSED, NO_DEVICE, INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks; returns the exit code.

    0: what was run holds, or there is no accelerator and none was asked for; with ``--device cpu``, whose figures say
    nothing of accelerators, also what misses its bar. 1: something is missed or broke. 2: ``--device cuda`` was asked
    for and there is none.
    """
    options = _options(arguments)
    checks = [check for check in CHECKS if not options.only or check.name in options.only]
    seconds = options.minutes * 60
    teller, began = Teller(seconds), time.monotonic()
    known = facts.find()
    device = options.device or "cuda"
    if device == "cuda" and known["device"] is None:
        return _show_none(options, known, checks)
    setting = Setting(device, options.quick, _fresh(options.output), teller.tell, known)
    title = known["device"]["name"] if device == "cuda" else "CPU, in place of an accelerator"
    found: dict[str, Findings] = {}
    try:
        asyncio.run(_run(checks, setting, seconds - (time.monotonic() - began), found))
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.stderr.write("Stopped before the end; nothing is left running.\n")
        _show(options, title, _stopped(checks, found))
        return INTERRUPTED
    # First what nothing can go wrong with.
    _show(options, title, found)
    _write(options, setting, title, found, time.monotonic() - began)
    verdicts = {row.verdict for findings in found.values() for row in findings.rows}
    return MISSED if "FAILED" in verdicts or ("MISSED" in verdicts and device == "cuda") else 0


async def _run(checks: Sequence[Check], setting: Setting, seconds: float, found: dict[str, Findings]) -> None:
    task = asyncio.current_task()
    if task is not None:
        # As Ctrl-C: end what was started, then end.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await run_checks(checks, setting, seconds, found)


def _stopped(checks: Sequence[Check], found: Mapping[str, Findings]) -> dict[str, Findings]:
    """What was found until somebody stopped it, and what was not."""
    told = {check.name: found.get(check.name, Findings()) for check in checks}
    ended = list(found)[:-1]
    for check in checks:
        if check.name not in ended:
            told[check.name].rows.append(Row(check.about, note="stopped before its end"))
    return told


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_check", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), help="what to check (cuda, if there is any)")
    parser.add_argument("--quick", action="store_true", help="measure for a moment only: does it work at all?")
    names = [check.name for check in CHECKS]
    parser.add_argument("--only", nargs="+", choices=names, metavar="CHECK", help=f"some of {', '.join(names)}")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of the table")
    parser.add_argument("--minutes", type=float, default=WHOLE_SECONDS / 60, help="for all of it (%(default)s)")
    parser.add_argument("--output", type=Path, default=Path("build/gpu-check"), help="folder for logs (%(default)s)")
    parser.add_argument("--results", type=Path, help="folder of the result file (build/results; on a CPU, --output)")
    parser.add_argument("--keep", action="store_true", help=KEEP_HELP)
    return parser.parse_args(arguments)


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder.absolute()


def _show_none(options: argparse.Namespace, known: Json, checks: Sequence[Check]) -> int:
    """Say why nothing is run; what the driver shows is told all the same. Writes no result; returns the exit code."""
    setting = Setting("cuda", options.quick, options.output, Teller(options.minutes * 60).tell, known)
    seen = asyncio.run(run_checks([check for check in checks if check.name == SEE], setting, options.minutes * 60))
    rest = {check.name: _not_run(check, known) for check in checks if check.name != SEE}
    _show(options, "no accelerator", seen | rest)
    return NO_DEVICE if options.device else 0


def _not_run(check: Check, known: Mapping[str, object]) -> Findings:
    why = "needs an accelerator that PyTorch can use"
    problem = f"; looking for one failed: {known['problem']}" if known.get("problem") else ""
    return Findings([Row(check.about, note=check.missing() or why + problem)])


def _write(options: argparse.Namespace, setting: Setting, title: str, found: dict[str, Findings], took: float) -> None:
    figures: Json = {"device": title, "quick": setting.quick, "seconds": round(took, 1)}
    figures |= {name: findings.figures for name, findings in found.items()}
    rows = [row for findings in found.values() for row in findings.rows]
    figures["not run"] = {row.what: row.note for row in rows if row.verdict in ("not run", "FAILED")}
    # What a CPU does in its place is no result of an accelerator.
    folder = options.results or (folder_of(keep=options.keep) if setting.device == "cuda" else setting.folder)
    figures["measured"] = [
        {"what": bar.name, "value": bar.value, "goal": bar.goal, "unit": bar.unit}
        for bar in (row.bar for row in rows)
        if bar is not None
    ]
    try:
        result = write_result(NAME, command=COMMAND, figures=figures, folder=folder)
    except OSError as error:
        setting.tell(f"no result file could be written ({error}); give another folder with --results")
        return
    setting.tell(f"written: {path_of(result, folder)}; logs are in {setting.folder}")


def _show(options: argparse.Namespace, title: str, found: dict[str, Findings]) -> None:
    if options.json:
        rows = [
            {
                "check": name,
                "what": row.what,
                "value": row.bar.value if row.bar is not None else row.value,
                "goal": row.bar.goal if row.bar is not None else "",
                "unit": row.bar.unit if row.bar is not None else "",
                "verdict": row.verdict,
                "note": row.note,
            }
            for name, findings in found.items()
            for row in findings.rows
        ]
        sys.stdout.write(json.dumps({"device": title, "rows": rows}, indent=2) + "\n")
        return
    print_table(f"GPU check: {title}", found)
    sys.stdout.write(summary(found) + "\n")
