"""Topics and payloads are a public interface: each is written out here."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from testing.events import (
    AT,
    endpoint_event,
    job_event,
    node_event,
    progress_event,
    share_event,
    state_event,
    tier_event,
)
from tiercel.broker.progress.topics import broker_presence, message_of
from tiercel.core.endpoints import DelayWindow, EndpointLoad
from tiercel.core.events import (
    EndpointGone,
    EndpointMeasured,
    EndpointShareChanged,
    Event,
    PriorityChanged,
    StateChanged,
)
from tiercel.core.jobs import JobState
from tiercel.core.nodes import Accelerator
from tiercel.core.shares import Share

ISO = "2023-11-14T22:13:20.250Z"
ABOUT = {"at": ISO, "sequence": 1, "job": "j1", "tenant": "default"}


@pytest.mark.parametrize(
    ("event", "topic", "payload"),
    [
        (
            state_event(JobState.RUNNING),
            "tiercel/v1/default/jobs/j1/state",
            {**ABOUT, "state": "running", "reason": "because"},
        ),
        (
            EndpointGone("digits", "default", AT),
            "tiercel/v1/default/endpoints/digits/version",
            {"at": ISO, "endpoint": "digits", "tenant": "default", "version": None},
        ),
        (
            EndpointGone("digits", "default", AT, "small"),
            "tiercel/v1/default/endpoints/digits/variants/small/version",
            {"at": ISO, "endpoint": "digits", "variant": "small", "tenant": "default", "version": None},
        ),
        (
            tier_event(2),
            "tiercel/v1/default/jobs/j1/tiers/2",
            {
                **ABOUT,
                "tier": 2,
                "target": 0.9,
                "value": 2.0,
                "deadline_seconds": None,
                "state": "delivered",
                "reached_value": 0.91,
                "delivered_value": 0.905,
                "reached_seconds": 4.0,
                "delivered_seconds": 5.0,
                "version": 3,
                "reason": "",
            },
        ),
        (
            share_event(),
            "tiercel/v1/default/jobs/j1/allocation",
            {
                **ABOUT,
                "node": "n1",
                "cpu_weight": 0.25,
                "cpu_cap_cores": None,
                "accelerators": {},
                "reason": "A quarter, since four jobs run.",
            },
        ),
        (job_event(PriorityChanged(-5)), "tiercel/v1/default/jobs/j1/priority", {**ABOUT, "priority": -5}),
        (
            endpoint_event(),
            "tiercel/v1/default/endpoints/digits/version",
            {
                "at": ISO,
                "endpoint": "digits",
                "tenant": "default",
                "version": 3,
                "job": "j1",
                "tier": 1,
                "metric": "accuracy",
                "value": 0.905,
                "delivered_at": ISO,
                "sha256": "ab" * 32,
                "cheap_variants": [],
                "deployed_by": "",
                "file": "",
            },
        ),
        (
            node_event(online=False),
            "tiercel/v1/nodes/n1/presence",
            {"at": ISO, "node": "n1", "presence": "offline", "lease_epoch": 7, "drain": "no", "accelerators": []},
        ),
    ],
)
def test_state_is_retained_and_must_arrive(event: Event, topic: str, payload: dict[str, Any]) -> None:
    message = message_of(event)

    assert (message.topic, json.loads(message.payload)) == (topic, payload)
    assert (message.qos, message.retain) == (1, True)


def test_each_variant_of_an_endpoint_has_a_topic_of_its_own() -> None:
    plain = endpoint_event()
    event = replace(plain, version=replace(plain.version, variant="small"))
    message = message_of(event)
    assert message.topic == "tiercel/v1/default/endpoints/digits/variants/small/version"
    assert json.loads(message.payload)["variant"] == "small"
    assert "variant" not in json.loads(message_of(plain).payload)


def test_progress_is_news_that_may_get_lost() -> None:
    message = message_of(progress_event(3, 0.5))

    assert message.topic == "tiercel/v1/default/jobs/j1/progress"
    assert (message.qos, message.retain) == (0, False)
    assert json.loads(message.payload) == {
        **ABOUT,
        "epoch": 3,
        "value": 0.5,
        "metrics": {"accuracy": 0.5, "loss": None},  # JSON has no NaN
        "cpu_seconds": 1.5,
        "accelerator_seconds": 0.0,
    }


def test_a_node_tells_of_its_accelerators() -> None:
    event = replace(node_event(), accelerators=(Accelerator("GPU-1", "Made up", 5, "lost"),))
    told = json.loads(message_of(event).payload)["accelerators"]
    assert told == [{"id": "GPU-1", "name": "Made up", "memory_bytes": 5, "problem": "lost"}]


def test_presence_of_the_broker() -> None:
    assert json.loads(broker_presence(online=True, at=AT).payload) == {"at": ISO, "presence": "online"}
    assert json.loads(broker_presence(online=False, at=AT).payload)["presence"] == "offline"
    assert broker_presence(online=True, at=AT).retain


def test_a_name_cannot_reach_into_other_topics() -> None:
    event = job_event(StateChanged(JobState.PENDING, ""), tenant="a/b", job_id="+#")

    assert message_of(event).topic == "tiercel/v1/a%2Fb/jobs/%2B%23/state"


def test_the_share_of_an_endpoint_is_state_and_null_when_nothing_limits_it() -> None:
    message = message_of(EndpointShareChanged("digits", "alice", AT, "n1", Share(0.25, 0.5, "slow")))
    assert (message.topic, message.qos, message.retain) == ("tiercel/v1/alice/endpoints/digits/allocation", 1, True)
    assert json.loads(message.payload) == {
        "at": ISO,
        "endpoint": "digits",
        "tenant": "alice",
        "node": "n1",
        "cpu_weight": 0.25,
        "cpu_cap_cores": 0.5,
        "reason": "slow",
    }
    lifted = json.loads(message_of(EndpointShareChanged("digits", "alice", AT, "n1", None)).payload)
    assert (lifted["cpu_weight"], lifted["cpu_cap_cores"], lifted["reason"]) == (None, None, "")


def test_what_was_measured_of_an_endpoint_may_get_lost() -> None:
    load = EndpointLoad(8.0, 0.01, 0.5, 0.75, (DelayWindow(9.5, 7, 2, 0.5, 0.01, 0.02, 0.03),), 0.002)
    message = message_of(EndpointMeasured("digits", "alice", AT, "n1", 0.05, load))
    assert (message.topic, message.qos, message.retain) == ("tiercel/v1/alice/endpoints/digits/load", 0, False)
    assert json.loads(message.payload) == {
        "at": ISO,
        "endpoint": "digits",
        "tenant": "alice",
        "node": "n1",
        "objective_seconds": 0.05,
        "requests_per_second": 8.0,
        "delay_seconds": 0.01,
        "cpu_cores": 0.5,
        "in_objective": 0.75,
        "lag_seconds": 0.002,
        "windows": [
            {
                "seconds": 9.5,
                "answers": 7,
                "failures": 2,
                "in_objective": 0.5,
                "p50_seconds": 0.01,
                "p95_seconds": 0.02,
                "p99_seconds": 0.03,
            }
        ],
    }
