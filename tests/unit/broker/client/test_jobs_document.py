"""The example of docs/jobs.md is a spec, and what people write about runs over time is read as they mean it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tiercel.broker.client.spec_file import load_spec, parse_spec
from tiercel.core.errors import InvalidSpecError
from tiercel.core.validation import validate_spec

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "jobs.md"
BASE = {"endpoint": "digits", "module": "package.train", "metric": "accuracy", "tiers": [0.9]}


def test_the_example_is_a_spec(tmp_path: Path) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (tmp_path / "train.py").write_text("pass\n")
    (tmp_path / "job.yaml").write_text(example)
    spec = load_spec(tmp_path / "job.yaml")
    validate_spec(spec)
    assert spec.max_duration_seconds == 7200
    assert spec.retries == 3


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("max_duration", "2 hours", "max_duration: '2 hours' is not a time; write one such as 90m"),
        ("max_duration", 0, "max_duration: 0 s is not a time from 1s to 3650d"),
        ("max_duration", -5, "max_duration: -5 s is not a time"),
        ("max_duration", float("nan"), "max_duration: nan s is not a time"),
        ("max_duration", "4000d", "max_duration: 3.456e+08 s is not a time from 1s to 3650d"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence_that_names_the_field(field: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidSpecError, match=re.escape(message)) as refused:
        validate_spec(parse_spec({**BASE, field: value}))
    assert refused.value.field == field
