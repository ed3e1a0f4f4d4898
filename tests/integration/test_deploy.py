"""The systemd units are ones that systemd takes, and start commands that there are."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from testing.needs import need
from tiercel.broker.cli.app import app

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
PROGRAM = "/opt/tiercel/bin/tiercel"


def service_of(unit: Path) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(unit.read_text())
    return parser["Service"]


def test_there_is_one_for_the_first_machine_and_one_for_the_others() -> None:
    assert [unit.name for unit in UNITS] == ["tiercel-agent.service", "tiercel-broker.service"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_takes_it(unit: Path, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    need(analyze, "systemd's checker of units", "systemd")
    assert analyze is not None
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace(PROGRAM, sys.executable))
    done = subprocess.run([analyze, "verify", str(copy)], check=False, capture_output=True, text=True, timeout=60)
    told = [line for line in done.stderr.splitlines() if unit.name in line]
    assert (done.returncode, told) == (0, []), done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_its_command_and_options_are_ones_that_there_are(unit: Path) -> None:
    program, command, *words = shlex.split(service_of(unit)["ExecStart"])
    assert program == PROGRAM
    helped = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    plain = re.sub(r"\x1b\[[0-9;]*m", "", helped.output)
    assert [word for word in words if word.startswith("--") and word not in plain] == []


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_it_keeps_what_outlives_a_crash_and_may_make_groups(unit: Path) -> None:
    service = service_of(unit)
    assert (service["KillMode"], service["Delegate"], service["NoNewPrivileges"]) == ("process", "yes", "yes")
    # What is read-only to it would be the control groups, and what is private would be without the accelerators.
    assert "ProtectControlGroups" not in service
    assert "PrivateDevices" not in service
    assert service["User"] != "root"
