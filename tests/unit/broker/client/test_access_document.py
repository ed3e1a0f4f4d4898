"""The examples of docs/security.md on who may ask: one of a spec, and the commands there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tiercel import InvalidSpecError
from tiercel.broker.cli.app import app
from tiercel.broker.client import parse_spec
from tiercel.core.endpoint_access import EndpointAccess

PAGE = Path(__file__).resolve().parents[4] / "docs" / "security.md"
SPEC = {"endpoint": "digits", "module": "m", "metric": "accuracy", "tiers": [0.9]}


def section() -> str:
    found = re.search(r"## Who may ask an endpoint\n(.*?)\n## ", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_example_is_of_a_spec() -> None:
    block = re.search(r"```yaml\n(.*?)```", section(), re.DOTALL)
    assert block is not None
    assert parse_spec(SPEC | yaml.safe_load(block[1])).access is EndpointAccess.KEY
    assert parse_spec(SPEC).access is None
    with pytest.raises(InvalidSpecError) as refused:
        parse_spec(SPEC | {"access": "everybody"})
    assert refused.value.field == "access"


def test_every_command_and_option_is_there() -> None:
    lines = re.findall(r"^tiercel (key|endpoints) (\w+)(.*)$", section(), re.MULTILINE)
    assert len(lines) >= 4
    for group, command, rest in lines:
        told = CliRunner().invoke(app, [group, command, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
        assert told.exit_code == 0, told.output
        for option in re.findall(r"--[a-z]+", rest.partition("#")[0]):
            assert option in re.sub(r"\x1b\[[0-9;]*m", "", told.output), (group, command, option)
