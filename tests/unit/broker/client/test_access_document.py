"""The example of docs/security.md on who may ask is one of a spec."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tiercel import InvalidSpecError
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
