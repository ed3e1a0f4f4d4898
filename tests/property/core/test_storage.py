"""Whatever core can hold comes back from JSON as it was."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiercel.core.endpoints import Delivery, Endpoint
from tiercel.core.events import EndpointEvent, JobEvent, NodeEvent, ShareDecision
from tiercel.core.jobs import Job, Observation
from tiercel.core.nodes import Node
from tiercel.core.storage import from_json, to_json

st.register_type_strategy(Mapping, lambda hint: st.dictionaries(*map(st.from_type, get_args(hint))))

KINDS = [Job, Delivery, Endpoint, ShareDecision, JobEvent, EndpointEvent, NodeEvent, Node, Observation]


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a Job has many fields
def test_round_trip(kind: type, data: st.DataObject) -> None:
    value = data.draw(st.from_type(kind))
    text = to_json(value)
    back: object = from_json(kind, text)
    assert type(back) is kind
    # By its text where NaN, which equals nothing, is among the fields.
    assert back == value or "nan" in repr(value)
    assert json.loads(to_json(back)).keys() == json.loads(text).keys()
    assert json.loads(text, parse_constant=pytest.fail) is not None
