"""Versions that are tried on a part of the requests before they get all of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from testing import onnx_models
from testing.loading_bench import Bench
from testing.until import until
from tiercel.core.errors import (
    ArtefactRefusedError,
    ConflictError,
    InferenceFailedError,
    NotFoundError,
    UnavailableError,
)
from tiercel.serving.descriptions import Descriptions


async def test_a_trial_is_not_decided_while_the_server_hands_over(bench: Bench) -> None:
    bench.put(1)
    await bench.load()
    bench.put(2)
    await bench.load(canary_fraction=0.5, canary_requests=2)
    await bench.lifecycle.pause()
    for _ in range(8):
        await bench.answer()
    looked = bench.registry.record("m").trial
    assert looked is not None
    looks: list[float] = []
    look = looked.look

    def counted(now: float) -> Any:
        looks.append(now)
        return look(now)

    looked.look = counted  # type: ignore[method-assign]
    await until(lambda: len(looks) >= 3)  # it was looked at more than once, with all that would decide it
    assert bench.registry.record("m").trial is looked
    assert bench.lifecycle.live_versions() == {"m": 1}
    assert set(bench.lifecycle.trials()) == {"m"}
    bench.lifecycle.resume()
    await until(lambda: bench.registry.record("m").trial is None)
    assert await bench.answer() == ("2", 2.0)


async def test_a_canary_gets_its_share_and_everything_after_it_did_well(bench: Bench) -> None:
    bench.put(1)
    await bench.load()
    bench.put(2)
    assert await bench.load(canary_fraction=0.25, canary_requests=10) == 2
    assert await bench.states() == {"1": "READY", "2": "READY"}
    answered = await bench.ask_until_it_is_over()
    assert answered[:8] == ["1", "1", "1", "2"] * 2
    assert await bench.answer() == ("2", 2.0)
    trial = bench.lifecycle.trial("m")["canary"]
    assert (trial["state"], trial["version"], trial["against"]) == ("PROMOTED", "2", "1")
    assert trial["new"]["answers"] >= 10


async def test_versions_can_be_asked_for_by_number_while_both_are_loaded(bench: Bench) -> None:
    bench.put(1)
    await bench.load()
    bench.put(2)
    await bench.load(canary_fraction=0.01, canary_seconds=1000)
    for version in ("1", "2"):
        assert bench.registry.live("m", version).version_text == version
    with pytest.raises(NotFoundError):
        bench.registry.live("m", "3")
    await bench.lifecycle.unload("m")


async def test_a_version_that_shall_answer_stays_whatever_is_loaded_or_tried(bench: Bench) -> None:
    for version in (1, 2):
        bench.put(version)
    (bench.root / "m" / "live.json").write_text('{"version": 1, "fixed": true}')
    assert await bench.load() == 1
    for parameters in ({"version": 2}, {"version": 2, "canary_fraction": 1}):
        with pytest.raises(ConflictError, match=r"version 1 is what shall answer .*'tiercel models promote'"):
            await bench.load(**parameters)
    await bench.load(version=2, canary_fraction=0.5, canary_requests=10, canary_max_latency_ratio=1e6)
    await bench.ask_until_it_is_over()
    assert await bench.answer() == ("1", 1.0)
    trial = bench.lifecycle.trial("m")["canary"]
    assert trial["state"] == "ROLLED_BACK"
    assert trial["reason"].startswith("it did well, and version 1 is what shall answer")
    (bench.root / "m" / "live.json").write_text('{"version": 2, "fixed": true}')
    assert await bench.load() == 2, "it bears no mark of the trial"
    assert await bench.load(version=2) == 2
    await bench.lifecycle.load_exactly({"m": 1})
    assert bench.lifecycle.live_versions() == {"m": 1}, "what answered before a hand-over does so after it"


async def test_a_canary_that_says_something_else_is_rolled_back_with_the_reason(bench: Bench) -> None:
    bench.put(1)
    await bench.load()
    bench.put(2)
    await bench.load(canary_fraction=0.1, canary_seconds=1000, canary_max_difference=0.5, canary_compare_fraction=1)
    await bench.ask_until_it_is_over()
    assert await bench.answer() == ("1", 1.0)
    trial = bench.lifecycle.trial("m")
    assert (trial["live"], trial["canary"]["state"]) == ("1", "ROLLED_BACK")
    assert trial["canary"]["reason"] == "outputs differ by 1, more than max_difference 0.5"
    async with asyncio.timeout(90):
        while (await bench.states())["2"] != "UNAVAILABLE":
            pass
    (line,) = (line for line in await bench.lifecycle.index(only_ready=False) if line["version"] == "2")
    assert line["reason"] == "rolled back: outputs differ by 1, more than max_difference 0.5"
    assert bench.registry.live("m").session.observer is None


async def test_a_canary_that_fails_is_rolled_back(bench: Bench) -> None:
    bench.put(1)
    await bench.load()
    onnx_models.put(bench.root, "m", 2, onnx_models.plus(2.0, features=5))  # it takes what nobody sends
    await bench.load(canary_fraction=0.5, canary_seconds=1000)
    new = bench.registry.live("m", "2")
    async with asyncio.timeout(90):
        while bench.registry.record("m").trial is not None:
            new.statistics.failed(InferenceFailedError("the model failed"), 0.0)
            await asyncio.sleep(0)
    assert await bench.answer() == ("1", 1.0)
    assert "requests failed (100 %)" in bench.lifecycle.trial("m")["canary"]["reason"]


async def test_an_operator_may_decide_a_trial(bench: Bench) -> None:
    bench.put(1)
    await bench.load()
    bench.put(2)
    plan = {"canary_fraction": 0.1, "canary_seconds": 1000}
    await bench.load(**plan)
    trial = bench.registry.record("m").trial
    assert await bench.load(**plan) == 2
    assert bench.registry.record("m").trial is trial, "doing it twice is doing it once"
    assert await bench.load(version=1) == 1
    assert bench.lifecycle.trial("m")["canary"]["reason"] == "version 1 was loaded"
    assert await bench.answer() == ("1", 1.0)
    await bench.load(**plan)
    assert await bench.load() == 2
    assert bench.lifecycle.trial("m")["canary"]["state"] == "PROMOTED"
    assert await bench.answer() == ("2", 2.0)


async def test_the_first_version_of_a_model_is_not_tried(bench: Bench) -> None:
    bench.put(1)
    assert await bench.load(canary_fraction=0.1) == 1
    assert await bench.answer() == ("1", 1.0)
    assert bench.lifecycle.trial("m") == {"name": "m", "live": "1", "canary": None}


async def test_an_unloaded_model_takes_its_canary_with_it(bench: Bench) -> None:
    bench.put(1)
    await bench.load()
    bench.put(2)
    await bench.load(canary_fraction=0.1)
    await bench.lifecycle.unload("m")
    bench.registry.ready = True
    for version in ("", "1", "2"):
        with pytest.raises(NotFoundError):
            bench.registry.live("m", version)


async def on_trial(bench: Bench, load: asyncio.Future[int]) -> None:
    """Until the version that is being loaded is on trial."""
    await until(lambda: bench.registry.record("m").trial is not None or load.done())


async def test_where_it_is_set_a_load_is_answered_when_the_trial_has_ended_well(bench: Bench) -> None:
    bench.put(1)
    await bench.load()
    bench.try_newer_versions(canary_fraction=0.5, canary_requests=10, canary_seconds=1000)
    bench.put(2)
    load = asyncio.ensure_future(bench.load())
    await on_trial(bench, load)
    again = asyncio.ensure_future(bench.load())
    assert "2" in await bench.ask_until_it_is_over()
    assert (await load, await again) == (2, 2)
    assert bench.verifier.asked == [1, 2], "a load that is asked for again joins the one under way"
    assert await bench.answer() == ("2", 2.0)


async def test_what_was_rolled_back_is_refused_until_somebody_names_it(bench: Bench) -> None:
    bench.put(1)
    await bench.load()
    bench.try_newer_versions(
        canary_fraction=0.5, canary_seconds=1000, canary_max_difference=0.5, canary_compare_fraction=1
    )
    bench.put(2)
    load = asyncio.ensure_future(bench.load())
    await on_trial(bench, load)
    await bench.ask_until_it_is_over()
    for outcome in (load, bench.load()):
        with pytest.raises(ArtefactRefusedError, match="was rolled back: outputs differ by 1"):
            await outcome
    assert bench.verifier.asked == [1, 2]
    assert await bench.answer() == ("1", 1.0)

    fresh = Bench.beside(bench)
    await fresh.lifecycle.load_all()
    assert await fresh.answer() == ("1", 1.0), "nor does a restart bring it back"
    assert (await fresh.states())["2"] == "UNAVAILABLE"
    fresh.close()

    assert await bench.load(version=2, canary_fraction=1) == 2
    assert await bench.answer() == ("2", 2.0)
    assert await bench.load() == 2


async def test_a_model_may_have_a_canary_of_its_own(bench: Bench) -> None:
    bench.put(1)
    await bench.load()
    bench.put(2)
    (bench.root / "m" / "config.pbtxt").write_text(
        'parameters { key: "canary_fraction" value { string_value: "0.5" } }'
        'parameters { key: "canary_requests" value { string_value: "4" } }'
    )
    load = asyncio.ensure_future(bench.load())
    await on_trial(bench, load)
    assert (await bench.ask_until_it_is_over())[:2] == ["1", "2"]
    assert await load == 2


async def test_an_earlier_version_comes_back_at_once_where_newer_ones_are_tried(bench: Bench) -> None:
    bench.put(1)
    bench.put(2)
    await bench.load()
    bench.try_newer_versions(canary_fraction=0.5, canary_seconds=1000)
    assert await bench.load(version=1) == 1
    assert await bench.answer() == ("1", 1.0)
    assert await bench.load(canary_fraction=1) == 2
    assert await bench.answer() == ("2", 2.0)


async def test_a_server_that_leaves_tells_those_who_wait_for_a_trial(bench: Bench) -> None:
    bench.put(1)
    await bench.load()
    bench.try_newer_versions(canary_fraction=0.5, canary_seconds=1000)
    bench.put(2)
    load = asyncio.ensure_future(bench.load())
    await on_trial(bench, load)
    bench.lifecycle.leave()
    with pytest.raises(UnavailableError, match="from the one that follows"):
        await load
    bench.registry.record("m").trial = None  # ends the task that watches it


async def test_telling_of_a_model_takes_nobodys_turn_in_a_trial(bench: Bench) -> None:
    bench.put(1)
    await bench.load()
    bench.put(2)
    await bench.load(canary_fraction=0.5, canary_seconds=1000)
    descriptions = Descriptions(bench.registry, 1, 1)
    told: list[list[str]] = []
    found: list[str] = []
    for _ in range(6):
        told.append(bench.plane.model_metadata("m")["versions"])
        told.append([each["version"] for each in descriptions.statistics("m")["model_stats"]])
        assert bench.plane.is_model_ready("m")
        descriptions.config("m")
        found.append((await bench.answer())[0])
    answering = [bench.lifecycle.answers("m", version) for version in (1, 2, 3)]
    second = bench.plane.model_metadata("m", "2")["versions"]
    await bench.lifecycle.unload("m")
    assert told == [["1", "2"]] * 12
    assert second == ["2"]
    assert found == ["1", "2"] * 3
    assert answering == [True, True, False]
