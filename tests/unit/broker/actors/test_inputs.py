"""What versions are asked: told once each way, over restarts, and a reason to train again where the terms say so."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from testing.actors import Actors, running_actors
from tests.unit.broker.actors.test_retraining import TERMS, delivering, endpoint_of, words_of
from tiercel.broker.actors.endpoint_messages import VersionChosen
from tiercel.broker.actors.feedback import InputsHeard
from tiercel.broker.lifecycle.drift import judged
from tiercel.broker.progress.topics import message_of
from tiercel.broker.store.sql import Store
from tiercel.core.drift import FeatureDrift, InputDrift
from tiercel.core.endpoints import DeliveryState, Endpoint, EndpointUsage, Version
from tiercel.core.events import InputsJudged
from tiercel.core.feedback import VersionFeedback
from tiercel.core.jobs import Direction, Tier
from tiercel.core.retraining import INPUTS, RetrainingState
from tiercel.core.storage import from_json, to_json

ON_INPUTS = replace(TERMS, on=(INPUTS,))
VERSION = Version(1, "j1", 1, "accuracy", 0.93, 1.0, "ab", Direction.MAX, target=0.9)
DIGITS = Endpoint("digits", "alice", 2, (VERSION,), "n1", replica_nodes=("n2",))


def asked(drifted: bool | None, version: int = 1, node_id: str = "") -> InputDrift:
    """A node's word; None for one that cannot compare yet."""
    if drifted is None:
        return InputDrift(version, 0, 17, 4, drifted=False, bound=0.165, node_id=node_id)
    off = FeatureDrift("x[2]", 0.4 if drifted else 0.05)
    return InputDrift(version, 500, 500, 4, drifted, 0.165, (off, FeatureDrift("x[0]", 0.01)), node_id)


async def say(actors: Actors, drifted: bool | None, version: int = 1, **more: Any) -> None:
    usage = EndpointUsage("digits", 1.0, inputs=(asked(drifted, version),), **more)
    actors.agents.measure_endpoints("n1", (usage,))
    await actors.service.retrainings.look()
    await actors.settle()


def told(actors: Actors) -> list[bool]:
    return [event.drifted for event in actors.events if isinstance(event, InputsJudged)]


def test_one_node_is_enough_for_an_alarm_and_all_that_can_compare_are_needed_to_end_it() -> None:
    endpoint = DIGITS
    for said, drifted in (
        ([None, None], []),
        ([False, None], []),
        ([False, True], [True]),
        ([True, True], []),
        ([None, None], []),  # both began anew
        ([True, False], []),
        ([None, False], [False]),
    ):
        words = tuple(asked(each, node_id=f"n{n + 1}") for n, each in enumerate(said))
        after, news = judged(endpoint, {1: words, 7: (asked(True, 7),)}, 2.0)
        assert [each.drifted for each in news] == drifted
        assert (after is endpoint) == (not drifted)
        endpoint = from_json(Endpoint, to_json(after))
        if drifted == [True]:
            assert news[0].inputs.node_id == "n2", "where it is farthest off"
    gone = replace(DIGITS, drifted=(5,))
    assert judged(gone, {}, 2.0)[0].drifted == (), "no such version any more"


def test_only_nodes_at_which_it_answers_are_heard_and_each_ones_last_word_counts() -> None:
    heard = InputsHeard()
    heard.note(DIGITS, "n1", (asked(True),))
    heard.note(DIGITS, "n1", (asked(False),))
    heard.note(DIGITS, "n2", (asked(True), asked(True, version=7)))
    heard.note(DIGITS, "n3", (asked(True),))
    assert [(each.node_id, each.drifted) for each in heard.of(DIGITS)[1]] == [("n1", False), ("n2", True)]
    assert list(heard.of(DIGITS)) == [1]
    assert [each.node_id for each in heard.of(replace(DIGITS, replica_nodes=()))[1]] == ["n1"]


async def test_it_is_told_once_and_outlives_the_broker_and_trains_nothing_unless_asked_for(store: Store) -> None:
    async with running_actors(store) as actors:
        await delivering(actors)
        await say(actors, False)
        await say(actors, True)
        await say(actors, True)
        (event,) = [each for each in actors.events if isinstance(each, InputsJudged)]
        message = message_of(event)
        assert message.topic == "tiercel/v1/alice/endpoints/digits/inputs"
        content = json.loads(message.payload)
        assert content["drifted"] is True
        assert (content["node"], content["version"], content["farthest"][0]["name"]) == ("n1", 1, "x[2]")
        assert endpoint_of(actors).retrainings == ()
    async with running_actors(store) as actors:
        await actors.connect()
        await say(actors, True)
        await say(actors, None)
        assert told(actors) == []
        assert endpoint_of(actors).drifted == (1,)
        await say(actors, False)
        assert told(actors) == [False]


async def test_where_its_terms_say_so_it_is_trained_again_and_replaced_by_what_reaches_the_promise(
    actors: Actors,
) -> None:
    first = await delivering(actors, retrain=ON_INPUTS)
    await say(actors, False)
    assert words_of(actors) == "version 1 is asked what it was at first, as far as can be told"
    await say(actors, True, feedback=(VersionFeedback(1, 400, 100),))
    (known,) = endpoint_of(actors).retrainings
    assert (known.cause, known.floor, known.state) == (INPUTS, 0.0, RetrainingState.UNDERWAY)
    job = await actors.job(known.job_id)
    assert job.spec.tiers == first.spec.tiers == (Tier(0.9),)
    assert f"version 1 is asked something else than at first: job {job.id} trains it again" in words_of(actors)

    await actors.alive(job.run_id)
    await actors.report(job.run_id, 0.91)
    await actors.delivery(f"{job.id}-tier-1", DeliveryState.LOADING, value=0.91, sha256="cd")
    await actors.delivery(f"{job.id}-tier-1", DeliveryState.DELIVERED, value=0.91, sha256="cd")
    await actors.service.retrainings.look()
    (live,) = endpoint_of(actors).live
    assert (live.version, live.value) == (2, 0.91), "it reaches what was promised, in the world as it is"
    await actors.exit(job.run_id)
    await say(actors, None, version=2)
    assert [each.state for each in endpoint_of(actors).retrainings] == [RetrainingState.REPLACED]
    await say(actors, False, version=2)
    assert [each.state for each in endpoint_of(actors).retrainings] == [RetrainingState.HELPED]


async def test_what_is_below_the_promise_replaces_nothing_of_which_nobody_says_how_good_it_is(actors: Actors) -> None:
    await delivering(actors, retrain=replace(TERMS, on=("accuracy", INPUTS)))
    await say(actors, True)
    (known,) = endpoint_of(actors).retrainings
    job = await actors.job(known.job_id)
    await actors.alive(job.run_id)
    await actors.report(job.run_id, 0.7)
    await actors.exit(job.run_id)
    await say(actors, True)
    assert endpoint_of(actors).live_version == 1
    assert [each.state for each in endpoint_of(actors).retrainings] == [RetrainingState.FAILED]
    assert f"the last retraining ({job.id}) did not help" in words_of(actors), "and a pause follows"


async def test_what_somebody_chose_stays_whatever_it_is_asked(actors: Actors) -> None:
    await delivering(actors, retrain=ON_INPUTS)
    await actors.registry.endpoints["digits"].call(VersionChosen(1, pin=True))
    await say(actors, True)
    assert endpoint_of(actors).retrainings == ()
    assert "version 1 is asked something else than at first: it was chosen and stays" in words_of(actors)
