"""``tiercel check``: whether a script will do as a job, found out by a few steps of it, before a long run."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.exit_codes import FAILED, INTERRUPTED
from tiercel.broker.cli.output import clean, is_terminal, print_json
from tiercel.broker.cli.parameters import command, json_option
from tiercel.broker.cli.session import fail
from tiercel.broker.cli.specs import changed, spec_of
from tiercel.core.errors import TiercelError
from tiercel.core.figures import number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tiercel.broker.cli.trial import Ended
    from tiercel.broker.client.projects.packing import PackedProject
    from tiercel.core.jobs import JobSpec
    from tiercel.core.script_checks import CheckFinding

_MARKS = {True: ("ok", "green"), False: ("fail", "red")}
_CONNECT = "connect"


@command(
    "tiercel check digits/",
    "tiercel check job.yaml --set arguments=[--small] --json",
    "tiercel check . --python ~/venv/bin/python --data mnist=/mnt/mnist",
)
@click.argument(
    "file", type=click.Path(path_type=Path), default=".", metavar="[DIR|FILE]", help="As 'tiercel submit' takes it."
)
@click.option("--set", "changes", multiple=True, metavar="FIELD=VALUE", help="Any field of the spec; once for each.")
@click.option(
    "--python", default=sys.executable, metavar="PYTHON", help="Interpreter that has what the script imports."
)
@click.option("--data", multiple=True, metavar="NAME=PATH", help="Where a data set is on this machine; once for each.")
@click.option("--seconds", type=click.IntRange(1, 86_400), default=300, show_default=True, help="For how long at most.")
@json_option
def check(
    file: Path, *, changes: tuple[str, ...], python: str, data: tuple[str, ...], seconds: int, as_json: bool
) -> None:
    """Try a script before a long run: a few steps, its metric, its export, a checkpoint.

    It runs on this machine and needs no broker: a copy of the files that
    would be sent, with the environment of a run. Its output goes to
    standard error. Exit code 1 if something would fail in a job.
    """
    from tiercel.broker.cli.trial import Trial

    spec = spec_of(file, changed({}, changes))
    places = dict(_place(text) for text in data)
    findings: list[CheckFinding] = []

    def find(finding: CheckFinding) -> None:
        findings.append(finding)
        if not as_json:
            _say(finding)

    try:
        packed = _packed(spec)
        for finding in _before(spec, packed, places, python):
            find(finding)
        if all(finding.ok for finding in findings):
            with _interrupted_by_any_end(), tempfile.TemporaryDirectory(prefix="tiercel-check-") as folder:
                trial = Trial(spec, packed, python, places, Path(folder))
                ended = trial.run(seconds, find, lambda piece: click.echo(piece, nl=False, err=True))
            for finding in _after(ended, findings, seconds):
                find(finding)
    except TiercelError as error:
        fail(error.message)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(INTERRUPTED) from None
    if as_json:
        print_json([{"check": each.check, "ok": each.ok, "found": each.found} for each in findings])
    if not all(finding.ok for finding in findings):
        raise click.exceptions.Exit(FAILED)


@contextlib.contextmanager
def _interrupted_by_any_end() -> Iterator[None]:
    """Whoever asks it to end, or closes its terminal, interrupts it, as Ctrl-C does: nothing that it began is left."""
    asked = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
    for each in asked:
        signal.signal(each, signal.default_int_handler)
    try:
        yield
    finally:
        for each in asked:
            signal.signal(each, signal.SIG_DFL)


def _place(text: str) -> tuple[str, Path]:
    name, is_given, path = text.partition("=")
    if not (is_given and name and Path(path).expanduser().exists()):
        fail(f"--data {text!r}: write NAME=PATH, with the path of a file or folder that is there.")
    return name, Path(path).expanduser()


def _packed(spec: JobSpec) -> PackedProject | None:
    from tiercel.broker.client.projects.packing import pack
    from tiercel.core.commands import check_command
    from tiercel.core.projects import DEFAULT_PROJECT_BYTES
    from tiercel.core.validation import validate_spec

    validate_spec(spec)
    if spec.project is None:
        return None
    packed = pack(spec.project, DEFAULT_PROJECT_BYTES)
    check_command(spec.command, packed.entries())
    return packed


def _before(
    spec: JobSpec, packed: PackedProject | None, places: dict[str, Path], python: str
) -> Iterator[CheckFinding]:
    """What is known before anything runs."""
    from tiercel.core.script_checks import CheckFinding

    tiers = ", ".join(number(tier.target) for tier in spec.tiers)
    yield CheckFinding("spec", True, f"endpoint {spec.endpoint}, {spec.metric} {spec.direction.value}, tiers {tiers}")
    if packed is not None:
        left = f", {len(packed.left_out)} left out" if packed.left_out else ""
        yield CheckFinding("project", True, f"{packed.paths} files, {packed.size_bytes:,} bytes{left}")
    if missing := [each.name for each in spec.data if each.name not in places]:
        yield CheckFinding("data", False, f"{', '.join(missing)}: say where it is, --data {missing[0]}=PATH")
    if missing := [name for name in spec.secrets if name not in os.environ]:
        yield CheckFinding("secrets", False, f"{', '.join(missing)}: set it in this shell, as the job will find it")
    where = f"with {python}" + (", not in its image" if spec.image else "")
    own = f", not in its own environment of {len(spec.requirements)} packages" if spec.requirements else ""
    yield CheckFinding("program", True, f"it runs {where}{own}")


def _after(ended: Ended, known: list[CheckFinding], seconds: int) -> Iterator[CheckFinding]:
    """What is wrong with how it ended, where the script itself could not say it."""
    from tiercel.core.script_checks import CheckFinding

    checked = {finding.check for finding in known}
    if ended.code not in (None, 0) and not {"export", "checkpoint"} <= checked:
        yield CheckFinding("program", False, f"it ended with code {ended.code}: {ended.last_line or 'it said nothing'}")
    elif ended.code not in (None, 0):
        yield CheckFinding("program", False, f"it ended with code {ended.code} after its training: {ended.last_line}")
    elif ended.code is None and "checkpoint" not in checked:
        last = f"; its last line: {ended.last_line}" if ended.last_line else ""
        what = "no model was had from it" if _CONNECT in checked else "it did not call connect()"
        yield CheckFinding("program", False, f"{what} within {seconds} s (--seconds){last}")
    elif _CONNECT not in checked:
        yield CheckFinding(
            _CONNECT, False, "the script never calls tiercel.trainer.connect(): docs/training-scripts.md says how"
        )


def _say(finding: CheckFinding) -> None:
    word, colour = _MARKS[finding.ok]
    mark = f"{word:<5}"
    if is_terminal() and not os.environ.get("NO_COLOR"):
        mark = click.style(mark, fg=colour)
    click.echo(f"{mark} {finding.check:<10} {clean(finding.found)}")
