"""Accuracy in use: over all nodes together, and beside what was promised, told once each way."""

from __future__ import annotations

import json
from dataclasses import replace

from tiercel.broker.actors.feedback import FeedbackHeard
from tiercel.broker.lifecycle.promises import judged
from tiercel.broker.progress.topics import message_of
from tiercel.core.endpoints import Endpoint, Version
from tiercel.core.feedback import VersionFeedback
from tiercel.core.jobs import Direction
from tiercel.core.retraining import Retrain
from tiercel.core.storage import from_json, to_json

VERSION = Version(1, "j1", 1, "accuracy", 0.93, 1.0, "ab", Direction.MAX, target=0.9)
DIGITS = Endpoint("digits", "alice", 2, (VERSION,), "n1")


def said(rows: int, right: int) -> dict[int, VersionFeedback]:
    return {1: VersionFeedback(1, rows, right)}


def test_a_version_below_what_was_promised_is_told_of_once_and_again_when_it_is_as_good() -> None:
    endpoint = DIGITS
    for rows, right, told in (
        (29, 0, []),  # too few rows
        (100, 85, []),  # 0.9 is within the interval
        (100, 80, [False]),
        (100, 70, []),  # told already
        (100, 88, []),  # not there yet
        (100, 90, [True]),
        (100, 80, [False]),
    ):
        after, news = judged(endpoint, said(rows, right), 2.0)
        assert [each.kept for each in news] == told
        assert (after is endpoint) == (not told)
        endpoint = from_json(Endpoint, to_json(after))  # a broker that begins anew tells nothing twice


def test_what_several_nodes_say_is_added_up_and_each_ones_last_word_counts() -> None:
    heard = FeedbackHeard()
    heard.note(DIGITS, "n1", (VersionFeedback(1, 60, 30),))
    heard.note(DIGITS, "n1", (VersionFeedback(1, 100, 90),))
    heard.note(DIGITS, "n2", (VersionFeedback(1, 100, 70),))
    heard.note(DIGITS, "n3", (VersionFeedback(7, 5, 5),))
    assert heard.of("digits") == {1: VersionFeedback(1, 200, 160)}, "nobody knows version 7"


def test_only_accuracies_that_were_promised_are_judged_and_what_starts_a_retraining_for_itself() -> None:
    for version, told, missed in (
        (replace(VERSION, target=None), 0, []),
        (replace(VERSION, direction=Direction.MIN), 0, []),
        (replace(VERSION, target=None, deployed_by="alice"), 1, [0.93]),
        (replace(VERSION, target=None, deployed_by="alice", value=None), 0, []),
        (replace(VERSION, target=None, retrain=Retrain(1.0, below=0.5)), 0, [0.5]),
        (replace(VERSION, retrain=Retrain(1.0, below=0.95)), 1, [0.9, 0.95]),
    ):
        endpoint, news = judged(replace(DIGITS, versions=(version,)), said(100, 10), 2.0)
        assert (len(news), [each.accuracy for each in endpoint.missed]) == (told, missed)


def test_mqtt_keeps_whether_the_promise_is_kept() -> None:
    _, (told,) = judged(DIGITS, said(100, 50), 2.0)
    message = message_of(told)
    assert (message.topic, message.qos, message.retain) == ("tiercel/v1/alice/endpoints/digits/promise", 1, True)
    news = json.loads(message.payload)
    assert (news["version"], news["kept"], news["promised"], news["rows"]) == (1, False, 0.9, 100)
    assert news["low"] < news["accuracy"] == 0.5 < news["high"]
