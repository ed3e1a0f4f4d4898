"""``tiercel doctor``: what this machine has and lacks for Tiercel, and how to mend it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.exit_codes import FAILED
from tiercel.broker.cli.lines import LABEL_WIDTH, say, wrapped
from tiercel.broker.cli.output import clean, is_terminal, print_json
from tiercel.broker.cli.parameters import command, json_option, target_options

if TYPE_CHECKING:
    from tiercel.broker.cli.checks import Finding
    from tiercel.broker.cli.session import Target

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
_INDENT = 6  # of what stands below a finding


@command("tiercel doctor", "tiercel doctor --json")
@json_option
@target_options
def doctor(*, as_json: bool, target: Target) -> None:
    """Say what this machine has and lacks, and how to mend it.

    Each check is ok, or warn where something will not be there, or fail
    where Tiercel cannot work. Exit code 1 if one fails.
    """
    from tiercel.broker.cli.checks import CHECKS, State

    found: list[Finding] = []
    for name, check in CHECKS.items():
        if not as_json and sys.stderr.isatty():
            click.echo(f"\r\x1b[K{name} …", nl=False, err=True)
        finding = check(target)
        found.append(finding)
        if not as_json:
            if sys.stderr.isatty():
                click.echo("\r\x1b[K", nl=False, err=True)
            _say(name, finding)
    if as_json:
        print_json(
            [
                {"check": name, "state": each.state.value, "found": each.found, "mend": each.mend}
                for name, each in zip(CHECKS, found, strict=True)
            ]
        )
    if any(each.state is State.FAIL for each in found):
        raise click.exceptions.Exit(FAILED)


def _say(name: str, finding: Finding) -> None:
    line = wrapped(
        f"{finding.state.value:<{_INDENT}}{name:<{LABEL_WIDTH}}{clean(finding.found)}", _INDENT + LABEL_WIDTH
    )
    if is_terminal() and not os.environ.get("NO_COLOR"):
        line = click.style(line[:_INDENT], fg=_COLOURS[finding.state.value]) + line[_INDENT:]
    click.echo(line)
    if finding.mend:
        say(f"{' ' * _INDENT}{clean(finding.mend)}", _INDENT)
