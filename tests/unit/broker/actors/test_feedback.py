"""Accuracy in use: over all nodes together, and beside what was promised, told once each way."""

from __future__ import annotations

import json
from dataclasses import replace

from tiercel.broker.actors.feedback import FeedbackHeard
from tiercel.broker.progress.topics import message_of
from tiercel.core.endpoints import Endpoint, Version
from tiercel.core.feedback import VersionFeedback
from tiercel.core.jobs import Direction

VERSION = Version(1, "j1", 1, "accuracy", 0.93, 1.0, "ab", Direction.MAX, target=0.9)
DIGITS = Endpoint("digits", "alice", 2, (VERSION,), "n1")


def note(heard: FeedbackHeard, rows: int, right: int, node_id: str = "n1", endpoint: Endpoint = DIGITS) -> list[bool]:
    """What is told of promises when a node says so much of version 1."""
    return [each.kept for each in heard.note(endpoint, node_id, (VersionFeedback(1, rows, right),), 2.0)]


def test_a_version_below_what_was_promised_is_told_of_once_and_again_when_it_is_as_good() -> None:
    heard = FeedbackHeard()
    assert note(heard, 29, 0) == [], "too few rows"
    assert note(heard, 100, 85) == [], "0.9 is within the interval"
    assert note(heard, 100, 80) == [False]
    assert note(heard, 100, 70) == [], "told already"
    assert note(heard, 100, 88) == [], "not there yet"
    assert note(heard, 100, 90) == [True]
    assert note(heard, 100, 80) == [False]


def test_what_several_nodes_say_is_added_up_and_each_ones_last_word_counts() -> None:
    heard = FeedbackHeard()
    note(heard, 60, 30, "n1")
    note(heard, 100, 90, "n1")
    note(heard, 100, 70, "n2")
    heard.note(DIGITS, "n3", (VersionFeedback(7, 5, 5),), 2.0)
    assert heard.of("digits") == {1: VersionFeedback(1, 200, 160)}, "nobody knows version 7"


def test_only_accuracies_that_were_promised_are_judged() -> None:
    for version, told in (
        (replace(VERSION, target=None), []),
        (replace(VERSION, direction=Direction.MIN), []),
        (replace(VERSION, target=None, deployed_by="alice"), [False]),
        (replace(VERSION, target=None, deployed_by="alice", value=None), []),
    ):
        assert note(FeedbackHeard(), 100, 10, endpoint=replace(DIGITS, versions=(version,))) == told


def test_mqtt_keeps_whether_the_promise_is_kept() -> None:
    (judged,) = FeedbackHeard().note(DIGITS, "n1", (VersionFeedback(1, 100, 50),), 2.0)
    message = message_of(judged)
    assert (message.topic, message.qos, message.retain) == ("tiercel/v1/alice/endpoints/digits/promise", 1, True)
    said = json.loads(message.payload)
    assert (said["version"], said["kept"], said["promised"], said["rows"]) == (1, False, 0.9, 100)
    assert said["low"] < said["accuracy"] == 0.5 < said["high"]
