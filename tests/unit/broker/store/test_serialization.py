from __future__ import annotations

import enum
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from testing.jobs import running_job
from tiercel.broker.store.serialization import from_json, to_json
from tiercel.core.events import JobEvent, ProgressMade, StateChanged
from tiercel.core.jobs import Job, JobState, Resources, Script, Tier
from tiercel.core.nodes import Node


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class First:
    name: str


@dataclass(frozen=True)
class Second:
    colours: tuple[Colour, ...] = ()
    pair: tuple[int, str] | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    names: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Both:
    either: First | Second | None
    flag: bool = False


def test_the_json_is_plain_and_tags_only_unions() -> None:
    value = Both(Second((Colour.RED,), (1, "a"), {"x": 0.5}, frozenset({"b", "a"})), flag=True)
    text = to_json(value)
    assert json.loads(text) == {
        "either": {"type": "Second", "colours": ["red"], "pair": [1, "a"], "numbers": {"x": 0.5}, "names": ["a", "b"]},
        "flag": True,
    }
    assert from_json(Both, text) == value
    assert from_json(Both, to_json(Both(None))) == Both(None)


@pytest.mark.parametrize(
    ("value", "text"), [(math.inf, '"inf"'), (-math.inf, '"-inf"'), (math.nan, '"nan"'), (1, "1.0")]
)
def test_numbers_that_json_lacks_become_text(value: float, text: str) -> None:
    assert to_json(value, float) == text
    assert repr(from_json(float, text)) == repr(float(value))


def test_what_ends_with_the_life_of_the_broker_is_not_stored() -> None:
    job = replace(running_job(), share=None)
    assert job.silence is not None
    text = to_json(job)
    assert "silence" not in text
    assert from_json(Job, text) == replace(job, silence=None)


def test_bytes_and_text_of_any_kind_come_back() -> None:
    script = Script("train.py", bytes(range(256)))
    assert from_json(Script, to_json(script)) == script
    first = First("\x00 \ud800 \U0001f600 é")
    assert to_json(first).isascii()
    assert from_json(First, to_json(first)) == first


def test_events_keep_which_change_they_are_about() -> None:
    for change in (StateChanged(JobState.FAILED, "why"), ProgressMade(3, 0.5, {"accuracy": 0.5}, 1.5)):
        event = JobEvent(7, "job", "tenant", 1.0, change)
        assert from_json(JobEvent, to_json(event)) == event


def test_unknown_fields_are_ignored_and_new_ones_take_their_default() -> None:
    assert from_json(Tier, '{"target":0.9,"gone":[1]}') == Tier(0.9)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Tier, "{}"),
        (Tier, "[]"),
        (Tier, '{"target":"much"}'),
        (Tier, '{"target":true}'),
        (Tier, '{"target":null}'),
        (Resources, '{"memory_bytes":1.5}'),
        (Resources, '{"memory_bytes":true}'),
        (Both, '{"either":{"type":"Third"}}'),
        (Both, '{"either":{"name":"x"}}'),
        (Both, '{"either":null,"flag":1}'),
        (Second, '{"colours":["blue"]}'),
        (Second, '{"colours":"red"}'),
        (Second, '{"pair":[1]}'),
        (Second, '{"numbers":[]}'),
        (Script, '{"name":"x","content":"?"}'),
        (Node, "not json"),
    ],
)
def test_what_is_not_such_a_value_is_refused(kind: type, text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        from_json(kind, text)


def test_what_could_not_be_read_back_is_not_written() -> None:
    with pytest.raises(TypeError, match=r"2\.0 is not of type int"):
        to_json(Resources(memory_bytes=2.0))  # type: ignore[arg-type] # the mistake under test


@pytest.mark.parametrize("hint", [complex, str | int, list[int], dict[int, str], First | Colour])
def test_kinds_of_values_it_does_not_know_are_refused(hint: object) -> None:
    with pytest.raises(TypeError, match="stored"):
        to_json(None, hint)
