from __future__ import annotations

import enum
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import pytest

from testing.jobs import run_of, running_job
from tiercel.broker.lifecycle.duration import in_a_new_life
from tiercel.core.events import JobEvent, ProgressMade, StateChanged
from tiercel.core.fields import NOT_STORED
from tiercel.core.jobs import Job, JobState, Resources, Script, Tier
from tiercel.core.nodes import Node
from tiercel.core.storage import from_json, to_json


class Colour(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class First:
    name: str
    type: Literal["First"] = "First"


@dataclass(frozen=True)
class Second:
    colours: tuple[Colour, ...] = ()
    pair: tuple[int, str] | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    type: Literal["Second"] = "Second"


@dataclass(frozen=True)
class Both:
    either: First | Second | None
    flag: bool = False


@dataclass(frozen=True)
class Memory:
    kept: int
    lost: int = field(default=0, metadata=NOT_STORED)


@dataclass(frozen=True)
class Memories:
    one: Memory
    maybe: Memory | None = None
    many: tuple[Memory, ...] = ()


def test_the_json_is_plain_and_tags_only_unions() -> None:
    value = Both(Second((Colour.RED,), (1, "a"), {"x": 0.5}), flag=True)
    text = to_json(value)
    assert json.loads(text) == {
        "either": {"type": "Second", "colours": ["red"], "pair": [1, "a"], "numbers": {"x": 0.5}},
        "flag": True,
    }
    assert from_json(Both, text) == value
    assert from_json(Both, to_json(Both(None))) == Both(None)


def test_what_is_not_stored_is_left_out_however_deep_it_is() -> None:
    value = Memories(Memory(1, 9), Memory(2, 9), (Memory(3, 9), Memory(4, 9)))
    assert "9" not in to_json(value)
    assert from_json(Memories, to_json(value)) == Memories(Memory(1), Memory(2), (Memory(3), Memory(4)))


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1.0])
@pytest.mark.parametrize("earlier", [False, True], ids=["today", "as 0.1.0 wrote it"])
def test_numbers_that_json_lacks_are_text(value: float, earlier: bool) -> None:
    text = to_json(Tier(value))
    json.loads(text, parse_constant=pytest.fail)
    if earlier and not math.isfinite(value):
        text = json.dumps({"target": str(value)})
    assert repr(from_json(Tier, text)) == repr(Tier(value))


def test_what_ends_with_the_life_of_the_broker_is_not_stored() -> None:
    job = running_job()
    run = run_of(job)
    assert run.silence is not None
    text = to_json(job)
    assert "silence" not in text
    assert from_json(Job, text) == replace(job, run=in_a_new_life(replace(run, silence=None, ordered_at=None)))


def test_bytes_and_text_of_any_kind_come_back() -> None:
    script = Script("train.py", bytes(range(256)))
    assert from_json(Script, to_json(script)) == script
    first = First("\x00 \U0001f600 é")
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
        (Tier, '{"target":null}'),
        (Resources, '{"memory_bytes":1.5}'),
        (Both, '{"either":{"type":"Third"}}'),
        (Both, '{"either":{"type":"Second","pair":7}}'),
        (Both, '{"either":null,"flag":3}'),
        (Second, '{"colours":["blue"]}'),
        (Second, '{"colours":"red"}'),
        (Second, '{"pair":[1]}'),
        (Second, '{"numbers":[]}'),
        (Script, '{"name":"x","content":"?"}'),
        (Node, "not json"),
        (Node, "null"),
    ],
)
def test_what_is_not_such_a_value_is_refused(kind: type, text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        from_json(kind, text)


def test_what_could_not_be_read_back_is_not_written() -> None:
    with pytest.raises(ValueError, match="memory_bytes"):
        to_json(Resources(memory_bytes=2.0))  # type: ignore[arg-type] # the mistake under test
