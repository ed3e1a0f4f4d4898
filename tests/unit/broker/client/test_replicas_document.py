"""The example of docs/replicas.md is a spec."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tiercel import InvalidSpecError
from tiercel.broker.client import parse_spec
from tiercel.core.validation import validate_spec

PAGE = Path(__file__).resolve().parents[4] / "docs" / "replicas.md"


def test_the_example_is_a_spec_and_what_it_excludes_is_refused_with_the_field(tmp_path: Path) -> None:
    block = re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    script = tmp_path / "train.py"
    script.write_text("pass\n")
    content = yaml.safe_load(block[1]) | {"script": str(script)}
    spec = parse_spec(content)
    validate_spec(spec)
    assert spec.replicas == 2
    for changes in ({"replicas": 9}, {"replicas": 0}, {"variant": "small"}):
        with pytest.raises(InvalidSpecError) as refused:
            validate_spec(parse_spec(content | changes))
        assert refused.value.field == "replicas"
