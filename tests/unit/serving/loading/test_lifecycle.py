from __future__ import annotations

import asyncio
import hashlib
import shutil
import threading
from typing import Any

import pytest

from testing import onnx_models
from testing.loading_bench import Bench
from testing.until import until
from tiercel.core.errors import (
    ArtefactRefusedError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from tiercel.serving.loading.lifecycle import Lifecycle
from tiercel.serving.runtime import artefact_file, engine


async def test_a_load_takes_the_newest_version(bench: Bench) -> None:
    bench.put(1)
    bench.put(10)
    bench.put(9)
    assert await bench.lifecycle.load("m") == 10
    assert await bench.answer() == ("10", 10.0)


async def test_a_version_that_was_chosen_answers_also_after_a_restart(bench: Bench) -> None:
    for version in (1, 2, 3):
        bench.put(version)
    (bench.root / "m" / "live.json").write_text('{"version": 2}')
    assert await bench.lifecycle.load("m") == 2
    assert await bench.load(version=3) == 3, "who names a version gets it"
    again = Bench.beside(bench)
    await again.lifecycle.load_all()
    assert await again.answer() == ("2", 2.0)
    again.close()


async def test_an_older_version_answers_where_the_chosen_one_is_refused(bench: Bench) -> None:
    bench.put(1)
    bench.put(2, b"nonsense")
    bench.put(3)
    (bench.root / "m" / "live.json").write_text('{"version": 2}')
    await bench.lifecycle.load_all()
    assert await bench.answer() == ("1", 1.0)


async def test_a_model_of_which_none_shall_answer_is_not_loaded(bench: Bench) -> None:
    bench.put(1)
    (bench.root / "m" / "live.json").write_text('{"version": 0}')
    await bench.lifecycle.load_all()
    with pytest.raises(NotFoundError, match="is not loaded"):
        await bench.answer()
    with pytest.raises(
        NotFoundError, match=r"no version of model 'm' is to answer here, says its live\.json; name one"
    ):
        await bench.lifecycle.load("m")


@pytest.mark.parametrize("content", ["[", "[]", "{}", '{"version": "2"}', '{"version": true}', '{"version": -1}'])
async def test_a_choice_that_makes_no_sense_is_none(bench: Bench, content: str) -> None:
    bench.put(1)
    bench.put(2)
    (bench.root / "m" / "live.json").write_text(content)
    assert await bench.lifecycle.load("m") == 2


async def test_whoever_loads_a_version_can_tell_which_file_answers(bench: Bench) -> None:
    bench.put(1)
    await bench.lifecycle.load("m")
    delivered = hashlib.sha256((bench.root / "m/1/model.onnx").read_bytes()).hexdigest()
    assert bench.lifecycle.sha256_of("m", 1) == delivered
    (bench.root / "m/1/model.onnx").write_bytes(onnx_models.plus(7.0))
    await bench.lifecycle.load("m")  # it is live already
    assert bench.lifecycle.sha256_of("m", 1) == delivered
    assert (bench.lifecycle.sha256_of("m", 2), bench.lifecycle.sha256_of("nobody", 1)) == ("", "")


async def test_loading_what_is_live_does_nothing(bench: Bench) -> None:
    bench.put(1)
    await bench.lifecycle.load("m")
    live = bench.registry.live("m")
    assert await bench.lifecycle.load("m") == 1
    assert bench.registry.live("m") is live
    assert bench.verifier.asked == [1]


@pytest.mark.parametrize("bad", [b"nonsense", onnx_models.with_external_data(), onnx_models.with_custom_operator()])
async def test_a_bad_version_leaves_the_old_one_serving(bench: Bench, bad: bytes) -> None:
    bench.put(1)
    await bench.lifecycle.load("m")
    bench.put(2, bad)
    with pytest.raises(ArtefactRefusedError, match=r"version 2 of model 'm' was refused: .*; version 1 stays live"):
        await bench.lifecycle.load("m")
    assert await bench.answer() == ("1", 1.0)
    assert await bench.states() == {"1": "READY", "2": "UNAVAILABLE"}


async def test_a_version_without_a_model_is_refused(bench: Bench) -> None:
    (bench.root / "m" / "1").mkdir(parents=True)
    with pytest.raises(ArtefactRefusedError, match=r"model\.onnx cannot be read: .*; no version of it is live"):
        await bench.lifecycle.load("m")


async def test_what_is_loaded_is_what_was_verified_whatever_becomes_of_the_file(bench: Bench) -> None:
    bench.put(1)
    bench.verifier.gate.clear()
    bench.verifier.began.clear()
    load = asyncio.ensure_future(bench.lifecycle.load("m"))
    await bench.verifier.began.wait()
    (bench.root / "m/1/model.onnx").write_bytes(onnx_models.plus(7.0))
    bench.verifier.gate.set()
    await load
    assert await bench.answer() == ("1", 1.0)


async def test_loads_of_a_model_come_one_after_the_other(bench: Bench) -> None:
    bench.put(1)
    bench.verifier.gate.clear()
    bench.verifier.began.clear()
    loads = [asyncio.ensure_future(bench.lifecycle.load("m")) for _ in range(5)]
    await bench.verifier.began.wait()
    bench.put(2)
    bench.verifier.gate.set()
    assert await asyncio.gather(*loads) == [1, 2, 2, 2, 2]
    assert bench.verifier.asked == [1, 2]


async def test_requests_are_answered_by_the_old_version_until_the_new_one_is_up(bench: Bench) -> None:
    bench.put(1)
    await bench.lifecycle.load("m")
    bench.put(2)
    bench.verifier.gate.clear()
    bench.verifier.began.clear()
    load = asyncio.ensure_future(bench.lifecycle.load("m"))
    await bench.verifier.began.wait()
    assert await bench.answer() == ("1", 1.0)
    assert (await bench.states())["2"] == "LOADING"
    bench.verifier.gate.set()
    await load
    assert await bench.answer() == ("2", 2.0)


async def test_an_old_version_is_released_after_its_last_request(bench: Bench) -> None:
    bench.put(1)
    await bench.lifecycle.load("m")
    old = bench.registry.live("m")
    old.acquire()
    bench.put(2)
    await bench.lifecycle.load("m")
    assert (await bench.states())["1"] == "UNLOADING"
    assert old.session is not None
    old.release()
    async with asyncio.timeout(90):
        while (await bench.states())["1"] != "UNAVAILABLE":  # each look is a turn of the loading thread
            pass
    with pytest.raises(RuntimeError):
        _ = old.session


async def test_a_load_that_is_broken_off_leaves_no_trace_of_loading(bench: Bench) -> None:
    bench.put(1)
    bench.verifier.gate.clear()
    bench.verifier.began.clear()
    load = asyncio.ensure_future(bench.lifecycle.load("m"))
    await bench.verifier.began.wait()
    load.cancel()
    with pytest.raises(asyncio.CancelledError):
        await load
    assert await bench.states() == {"1": "UNAVAILABLE"}
    bench.verifier.running = 0
    bench.verifier.gate.set()
    assert await bench.lifecycle.load("m") == 1


async def test_at_the_start_a_bad_newest_version_gives_way_to_the_next(bench: Bench) -> None:
    bench.put(1)
    bench.put(2)
    bench.put(3, b"nonsense")
    (bench.root / "empty").mkdir()
    onnx_models.put(bench.root, "hopeless", 1, b"nonsense")
    await bench.lifecycle.load_all()
    assert bench.registry.ready
    assert await bench.answer() == ("2", 2.0)
    assert bench.verifier.asked.count(1) == 1  # the hopeless one's; ours was not needed


async def test_an_unloaded_model_is_gone_and_can_come_back(bench: Bench) -> None:
    bench.put(1)
    await bench.lifecycle.load("m")
    bench.registry.ready = True
    await bench.lifecycle.unload("m")
    await bench.lifecycle.unload("m")
    with pytest.raises(NotFoundError):
        await bench.answer()
    assert await bench.lifecycle.load("m") == 1
    assert await bench.answer() == ("1", 1.0)
    assert (await bench.states())["1"] == "READY"


@pytest.mark.parametrize(("name", "error"), [("nobody", NotFoundError), ("../m", InvalidRequestError)])
async def test_names_that_are_not_there(bench: Bench, name: str, error: Any) -> None:
    with pytest.raises(error):
        await bench.lifecycle.load(name)
    with pytest.raises(error):
        await bench.lifecycle.unload(name)
    assert bench.registry.known(name) is None


async def test_a_model_whose_folder_is_gone_stays_live_and_is_not_loaded_again(bench: Bench) -> None:
    bench.put(1)
    await bench.lifecycle.load("m")
    shutil.rmtree(bench.root / "m")
    with pytest.raises(NotFoundError, match="'m' has no version on disk"):
        await bench.lifecycle.load("m")
    assert await bench.answer() == ("1", 1.0)


async def test_a_swap_reads_builds_and_frees_off_the_event_loop(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.put(1)
    await bench.lifecycle.load("m")
    bench.put(2)
    threads: dict[str, int] = {}

    def noted(name: str, function: Any) -> Any:
        def note(*arguments: Any) -> Any:
            threads[name] = threading.get_ident()
            return function(*arguments)

        return note

    monkeypatch.setattr(artefact_file, "sealed_copy", noted("read", artefact_file.sealed_copy))
    monkeypatch.setattr(engine, "build_session", noted("build", engine.build_session))
    monkeypatch.setattr(engine.Session, "close", noted("free", engine.Session.close))
    await bench.lifecycle.load("m")
    await until(lambda: "free" in threads)
    assert set(threads) == {"read", "build", "free"}
    assert threading.get_ident() not in threads.values()


async def test_a_server_that_hands_over_waits_for_loads_and_takes_none_that_stood_in_line(bench: Bench) -> None:
    bench.put(1)
    bench.put(2)
    bench.verifier.gate.clear()
    under_way = asyncio.create_task(bench.load(version=1))
    await bench.verifier.began.wait()
    in_line = asyncio.create_task(bench.load(version=2))
    await until(lambda: bool(bench.lifecycle.lock_of("m")._waiters))
    paused = asyncio.create_task(bench.lifecycle.pause())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not paused.done()
    bench.verifier.gate.set()
    async with asyncio.timeout(90):
        await paused
        assert bench.lifecycle.live_versions() == {"m": 1}
        assert await under_way == 1
        with pytest.raises(UnavailableError, match="handing over"):
            await in_line
    assert bench.verifier.asked == [1]
    bench.lifecycle.resume()
    assert await bench.load(version=2) == 2


async def test_a_load_goes_back_to_an_earlier_version_by_its_number(bench: Bench) -> None:
    for version in (1, 2, 3):
        bench.put(version)
    assert await bench.load() == 3
    assert await bench.load(version="2") == 2
    assert await bench.answer() == ("2", 2.0)
    with pytest.raises(NotFoundError, match=r"version 7 of model 'm' is not on disk; there is 3, 2, 1"):
        await bench.load(version=7)
    for wrong in (True, "two", 0, -1, 1.5):
        with pytest.raises(InvalidRequestError, match="version"):
            await bench.load(version=wrong)
    with pytest.raises(InvalidRequestError, match="'config' is unknown"):
        await bench.load(config="{}")
    assert await bench.load() == 3


async def test_a_slow_check_of_one_model_holds_up_no_other(bench: Bench) -> None:
    bench.put(1)
    bench.verifier.gate.clear()
    bench.verifier.began.clear()
    slow = asyncio.ensure_future(bench.load())
    await bench.verifier.began.wait()
    gate, bench.verifier.gate = bench.verifier.gate, asyncio.Event()
    bench.verifier.gate.set()
    bench.verifier.running = 0
    onnx_models.put(bench.root, "other", 1, onnx_models.plus(1.0))
    assert await bench.lifecycle.load("other") == 1
    assert not slow.done()
    bench.verifier.running = 1
    gate.set()
    await slow


async def test_a_model_that_is_unloaded_and_not_on_disk_is_forgotten(bench: Bench) -> None:
    forgotten: list[str] = []
    bench.lifecycle = Lifecycle(bench.root, bench.registry, bench.loader, bench.start, forget=forgotten.append)
    bench.put(1)
    await bench.load()
    await bench.answer()
    await bench.lifecycle.unload("m")
    assert bench.registry.known("m") is not None, "it may come back"
    assert forgotten == []
    shutil.rmtree(bench.root / "m")
    await bench.lifecycle.unload("m")
    assert (bench.registry.records(), forgotten) == ([], ["m"])
    with pytest.raises(NotFoundError):
        await bench.lifecycle.unload("m")
    bench.put(1)
    await bench.load()
    assert bench.registry.record("m").account.requests == 0
