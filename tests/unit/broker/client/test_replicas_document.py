"""The example of docs/replicas.md is a spec."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tiercel import InvalidSpecError
from tiercel.broker.client import parse_spec
from tiercel.core.jobs import AUTO_REPLICAS, JobSpec
from tiercel.core.validation import validate_spec
from tiercel.core.wire import from_proto, to_proto
from tiercel.v1 import common_pb2

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
    refused_ones = [{"replicas": wrong} for wrong in (9, 0, -1, "0", "many", True)]
    for changes in (*refused_ones, {"variant": "small"}, {"variant": "small", "replicas": "auto"}):
        with pytest.raises(InvalidSpecError) as refused:
            validate_spec(parse_spec(content | changes))
        assert refused.value.field == "replicas"


def test_auto_leaves_it_to_the_broker_and_crosses_the_wire() -> None:
    _, block = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    spec = parse_spec(yaml.safe_load(block) | {"script": "", "module": "package.train"})
    validate_spec(spec)
    assert spec.replicas == AUTO_REPLICAS
    assert spec.endpoint_objective_seconds == 0.05
    assert from_proto(JobSpec, to_proto(spec, common_pb2.JobSpec)).replicas == AUTO_REPLICAS
