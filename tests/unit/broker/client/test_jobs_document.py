"""The example of docs/jobs.md is a spec, and what people write about runs over time is read as they mean it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tiercel.broker.client.spec_file import load_spec, parse_spec
from tiercel.core.errors import InvalidSpecError
from tiercel.core.validation import validate_spec

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "jobs.md"
BASE = {"endpoint": "digits", "module": "package.train", "metric": "accuracy", "tiers": [0.9]}


def test_the_example_is_a_spec(tmp_path: Path) -> None:
    example, deadlines = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (tmp_path / "train.py").write_text("pass\n")
    (tmp_path / "job.yaml").write_text(example)
    spec = load_spec(tmp_path / "job.yaml")
    validate_spec(spec)
    (tmp_path / "all.yaml").write_text(example.replace("\n# ", "\n"))
    whole = load_spec(tmp_path / "all.yaml")
    validate_spec(whole)
    assert (whole.every_seconds, whole.node_labels, whole.warm_start) == (86400, {"disk": "ssd"}, "4f0c9a1e")
    assert spec.priority == 10
    assert spec.max_duration_seconds == 7200
    assert spec.queue
    hard = parse_spec({**BASE, **yaml.safe_load(deadlines)})
    validate_spec(hard)
    assert [tier.hard for tier in hard.tiers] == [False, True]
    assert (spec.retries, spec.retry_back_off_seconds, spec.retry_exit_codes) == (3, 30, (75, 137))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("max_duration", "2 hours", "max_duration: '2 hours' is not a time; write one such as 90m"),
        ("max_duration", 0, "max_duration: 0 s is not a time from 1s to 3650d"),
        ("max_duration", -5, "max_duration: -5 s is not a time"),
        ("max_duration", float("nan"), "max_duration: nan s is not a time"),
        ("retries", 101, "retries: 101 is not a number of retries from 0 to 100"),
        ("retries.back_off", "0.1s", "retries.back_off: 0.1 s is not a time from 1s to 1d"),
        ("retries.exit_codes", [0], "retries.exit_codes: 0 is not an exit code from 1 to 255"),
        ("retries.exit_codes", [-9], "retries.exit_codes: -9 is not an exit code from 1 to 255; give 128 + N"),
        ("retries.exit_codes", [1] * 256, "retries.exit_codes: has 256 entries"),
        ("warm_start", "no such/job", "warm_start: 'no such/job' is not the id of a job"),
        ("node_labels", {"": "x"}, "node_labels: '' is not a label's name"),
        ("node_labels", {f"l{n}": "x" for n in range(33)}, "node_labels: has 33 entries; at most 32 are taken"),
        ("priority", 101, "priority: 101 is not a number from -100 to 100"),
        ("priority", -101, "priority: -101 is not a number from -100 to 100"),
        ("priority", "high", "priority: 'high' is not a whole number"),
        ("every", "1s", "every: 1 s is not a time from 1m to 366d"),
        ("every", "daily", "every: 'daily' is not a time; write one such as 90m"),
        ("max_duration", "4000d", "max_duration: 3.456e+08 s is not a time from 1s to 3650d"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence_that_names_the_field(field: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidSpecError, match=re.escape(message)) as refused:
        validate_spec(parse_spec({**BASE, "retries": 1, field: value}))
    assert refused.value.field == field


@pytest.mark.parametrize(("written", "retries"), [(3, 3), ("3", 3), ({"count": 3}, 3), ({"count": "2"}, 2)])
def test_retries_are_a_number_or_a_mapping(written: object, retries: int) -> None:
    spec = parse_spec({**BASE, "retries": written})
    assert (spec.retries, spec.retry_back_off_seconds, spec.retry_exit_codes) == (retries, None, ())


@pytest.mark.parametrize(
    ("written", "changed", "expected"),
    [
        (3, {"back_off": "30s"}, (3, 30)),
        ({"count": 3, "back_off": "30s"}, 5, (5, 30)),
        ({"count": 3, "back_off": "30s"}, {"count": 5}, (5, 30)),
        (None, {"count": 2, "back_off": 1}, (2, 1)),
        (3, None, (3, None)),
    ],
)
def test_flags_change_of_retries_what_they_name(
    tmp_path: Path, written: object, changed: object, expected: tuple[int, float | None]
) -> None:
    fields = {**BASE, "retries": written} if written is not None else BASE
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(fields))
    spec = load_spec(tmp_path / "job.yaml", {"retries": changed} if changed is not None else {})
    assert (spec.retries, spec.retry_back_off_seconds) == expected


@pytest.mark.parametrize(
    ("retries", "message"),
    [
        ({"exit_codes": [75]}, "retries.count: is missing"),
        (
            {"count": 3, "backoff": "30s"},
            "retries.backoff: is no field of a job's spec; did you mean retries.back_off?",
        ),
        ({"count": 3, "back_off": "soon"}, "retries.back_off: 'soon' is not a time"),
        ({"count": 3, "exit_codes": ["x"]}, "retries.exit_codes[0]: 'x' is not a whole number"),
        ({"count": 0, "exit_codes": [75]}, "retries.count: is 0, so that nothing else about retries means anything"),
        ([3], "retries: [3] is not a whole number"),
    ],
)
def test_retries_that_cannot_be_are_refused(retries: object, message: str) -> None:
    with pytest.raises(InvalidSpecError, match=re.escape(message)):
        validate_spec(parse_spec({**BASE, "retries": retries}))
