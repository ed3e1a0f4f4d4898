"""The example of docs/retraining.md is a spec that may be submitted."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from tiercel import Retrain, parse_spec
from tiercel.core.validation import validate_spec

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "retraining.md"


def test_the_example_is_a_spec_with_its_defaults_written_out(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (tmp_path / "train.py").write_text("pass\n")
    spec = parse_spec({**yaml.safe_load(example), "script": str(tmp_path / "train.py")})
    validate_spec(spec)
    assert spec.retrain == Retrain(2.0)
