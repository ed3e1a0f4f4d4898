from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
from onnx import helper

from testing import onnx_models
from testing.until import until
from tiercel.core.errors import ArtefactRefusedError
from tiercel.serving.models import repository
from tiercel.serving.models.repository import Artefact
from tiercel.serving.runtime.artefact_file import sealed_copy
from tiercel.serving.runtime.profile import LatencyProfile
from tiercel.serving.verification.verdict import Verdict
from tiercel.serving.verification.verifier import Verifier, VerifierLimits

MEGABYTE = 1024**2
STEPS = 2_000_000_000  # of a loop: it never ends by itself in a test


def limits(timeout: float = 60.0, memory: int = 4096) -> VerifierLimits:
    return VerifierLimits(timeout, memory * MEGABYTE, MEGABYTE)


@pytest.fixture
async def verifier() -> AsyncIterator[Verifier]:
    verifier = Verifier(limits())
    await verifier.start()
    yield verifier
    await verifier.stop()


def good(root: Path, version: int = 1) -> Artefact:
    """An artefact whose verdict tells its version, by the rows of its reference."""
    rows = np.zeros((version, 4), np.float32)
    onnx_models.put(root, "good", version, onnx_models.plus(version), {"input_x": rows, "output_y": rows + version})
    return repository.artefact(root, "good", version)


def endless(root: Path) -> Artefact:
    """An artefact whose check runs a loop that does not end."""
    reference = {"input_k": np.array(STEPS), "output_y": np.array(STEPS)}
    onnx_models.put(root, "endless", 1, onnx_models.counting_loop(), reference)
    return repository.artefact(root, "endless", 1)


def version_of(verdict: Verdict) -> int:
    return verdict.shapes["x"][0]


async def verify(verifier: Verifier, artefact: Artefact) -> Verdict:
    return await verifier.verify(artefact, sealed_copy(artefact.path, 64 * MEGABYTE))


async def test_good_artefacts_pass_and_bad_ones_say_why(verifier: Verifier, tmp_path: Path) -> None:
    verdict = await verify(verifier, good(tmp_path))
    assert version_of(verdict) == 1
    assert not verdict.has_loop
    onnx_models.put(tmp_path, "bad", 1, onnx_models.with_custom_operator())
    with pytest.raises(ArtefactRefusedError, match=r"evil\.example"):
        await verify(verifier, repository.artefact(tmp_path, "bad", 1))


async def test_artefacts_are_checked_side_by_side_by_one_process(verifier: Verifier, tmp_path: Path) -> None:
    stuck = asyncio.ensure_future(verify(verifier, endless(tmp_path)))
    await until(lambda: readers(verifier))
    pid = verifier.pid
    artefacts = [good(tmp_path, version) for version in range(1, 9)]
    verdicts = await asyncio.gather(*(verify(verifier, artefact) for artefact in artefacts))
    assert [version_of(each) for each in verdicts] == list(range(1, 9))
    assert verifier.pid == pid
    assert not stuck.done()
    stuck.cancel()


async def test_a_check_that_does_not_end_is_ended(tmp_path: Path) -> None:
    verifier = Verifier(limits(timeout=0.5))
    with pytest.raises(ArtefactRefusedError, match=r"longer than 0\.5 seconds"):
        await verify(verifier, endless(tmp_path))
    onnx_models.put(tmp_path, "alone", 1, onnx_models.counting_loop(STEPS))  # without a reference to run it on
    with pytest.raises(ArtefactRefusedError, match=r"longer than 0\.5 seconds"):
        await verify(verifier, repository.artefact(tmp_path, "alone", 1))
    await until(lambda: not readers(verifier))
    await verified_in_the_end(verifier, good(tmp_path))
    await verifier.stop()


async def verified_in_the_end(verifier: Verifier, artefact: Artefact) -> None:
    """Have it checked again and again: where the machine is busy, half a second may be too short for anything."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(ArtefactRefusedError):
                await verify(verifier, artefact)
                return


async def test_a_check_takes_what_cpu_nobody_wants_and_claims_some_where_that_is_next_to_nothing(
    verifier: Verifier, tmp_path: Path
) -> None:
    check = asyncio.ensure_future(verify(verifier, endless(tmp_path)))
    claiming = await lasting_reader(verifier)
    assert policy(claiming.pid) == os.SCHED_OTHER
    check.cancel()
    await verify(verifier, good(tmp_path))


async def lasting_reader(
    verifier: Verifier, stop: Callable[[psutil.Process], None] = psutil.Process.suspend
) -> psutil.Process:
    """The one process that reads the artefact, which no other takes the place of any more."""

    def claiming() -> list[psutil.Process]:
        found = []
        for each in readers(verifier):
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                if policy(each.pid) == os.SCHED_IDLE:
                    stop(each)  # to suspend it is as good as other processes that leave it no CPU
                elif each.nice() == 5:
                    found.append(each)
        return found

    await until(claiming)
    (reader,) = claiming()
    return reader


def readers(verifier: Verifier) -> list[psutil.Process]:
    """Processes that read an artefact: modest ones are children of the one that forks them."""
    found: list[psutil.Process] = []
    if verifier.pid is not None:
        for each in psutil.Process(verifier.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                found += each.children() if policy(each.pid) == os.SCHED_IDLE else [each]
    return found


async def forking(verifier: Verifier) -> psutil.Process:
    """The one process that forks modest readers, once it has given way."""

    def found() -> list[psutil.Process]:
        idle = []
        for each in psutil.Process(verifier.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                if policy(each.pid) == os.SCHED_IDLE:
                    idle.append(each)
        return idle

    await until(found)
    (process,) = found()
    return process


def policy(process: int) -> int:
    return os.sched_getscheduler(process)


async def test_a_check_that_wants_too_much_memory_is_refused(tmp_path: Path) -> None:
    verifier = Verifier(limits(memory=512))
    elements = 512 * MEGABYTE
    node = helper.make_node("Expand", ["x", "shape"], ["y"])
    content = onnx_models.model([node], {"x": (1, [1])}, {"y": (1, ["n"])}, {"shape": np.array([elements])})
    reference = {"input_x": np.zeros(1, np.float32), "output_y": np.zeros(1, np.float32)}
    onnx_models.put(tmp_path, "large", 1, content, reference)
    with pytest.raises(ArtefactRefusedError):
        await verify(verifier, repository.artefact(tmp_path, "large", 1))
    await verify(verifier, good(tmp_path))
    await verifier.stop()


async def test_an_artefact_that_kills_its_reader_is_refused(verifier: Verifier, tmp_path: Path) -> None:
    await verify(verifier, good(tmp_path))
    check = asyncio.ensure_future(verify(verifier, endless(tmp_path)))
    pid = verifier.pid
    (await lasting_reader(verifier)).kill()
    with pytest.raises(ArtefactRefusedError, match="the process that checked it died of signal 9"):
        await check
    assert verifier.pid == pid
    await verify(verifier, good(tmp_path, 2))


async def test_a_reader_without_a_claim_that_dies_is_followed_by_one_whose_end_is_known(
    verifier: Verifier, tmp_path: Path
) -> None:
    check = asyncio.ensure_future(verify(verifier, endless(tmp_path)))
    (await lasting_reader(verifier, psutil.Process.kill)).kill()
    with pytest.raises(ArtefactRefusedError, match="the process that checked it died of signal 9"):
        await check


async def test_the_process_that_forks_may_die_or_sleep(verifier: Verifier, tmp_path: Path) -> None:
    await verify(verifier, good(tmp_path))
    died = await forking(verifier)
    died.kill()
    await until(lambda: not died.is_running())
    for version in (2, 3, 4):
        assert version_of(await verify(verifier, good(tmp_path, version))) == version
    (await forking(verifier)).suspend()
    for version in (5, 6, 7, 8):
        assert version_of(await verify(verifier, good(tmp_path, version))) == version
    await until(lambda: not readers(verifier))


async def test_readers_know_no_socket_of_the_verifier(verifier: Verifier, tmp_path: Path) -> None:
    check = asyncio.ensure_future(verify(verifier, endless(tmp_path)))
    await until(lambda: readers(verifier) and not any(has_socket(each.pid) for each in readers(verifier)))
    claiming = await lasting_reader(verifier)
    await until(lambda: not has_socket(claiming.pid))
    check.cancel()


def has_socket(process: int) -> bool:
    found: list[str] = []
    with contextlib.suppress(FileNotFoundError):  # a descriptor that was closed meanwhile, or the process that ended
        found += [str(each.readlink()) for each in Path(f"/proc/{process}/fd").iterdir()]
    return any(each.startswith("socket:") for each in found)


async def test_what_batching_does_is_found_out_where_that_is_asked(verifier: Verifier, tmp_path: Path) -> None:
    artefact = good(tmp_path)
    verdict = await verifier.verify(artefact, sealed_copy(artefact.path, 64 * MEGABYTE), 16)
    assert verdict.batching is not None
    assert verdict.batching.profile is not None
    assert 1 < verdict.batching.profile.rows[-1] <= 16
    assert (await verify(verifier, artefact)).batching is None


async def test_what_is_known_of_the_version_before_goes_with_the_request(verifier: Verifier, tmp_path: Path) -> None:
    artefact = good(tmp_path)
    found = (await verifier.verify(artefact, sealed_copy(artefact.path, 64 * MEGABYTE), 16)).batching
    assert found is not None
    assert found.profile is not None
    # How long a row takes nobody can say, so each power of two from a tenth of a microsecond on is said to be known:
    # what is confirmed comes back as it was, and anything else would be measured anew.
    confirmed = []
    for power in range(24):
        known = dataclasses.replace(found, profile=LatencyProfile((1,), (1e-7 * 2**power,)))
        answer = await verifier.verify(artefact, sealed_copy(artefact.path, 64 * MEGABYTE), 16, known)
        confirmed.append(answer.batching == known)
    assert any(confirmed)
    assert not all(confirmed)


async def test_a_verifier_that_dies_is_renewed(verifier: Verifier, tmp_path: Path) -> None:
    await verify(verifier, good(tmp_path))
    check = asyncio.ensure_future(verify(verifier, endless(tmp_path)))
    pid = verifier.pid
    assert pid is not None
    reader = await lasting_reader(verifier)
    psutil.Process(pid).kill()
    with pytest.raises(ArtefactRefusedError, match="the verifier died"):
        await check
    assert verifier.pid not in {None, pid}
    await verify(verifier, good(tmp_path, 2))
    await until(lambda: not reader.is_running())


async def test_a_verifier_that_died_between_two_checks_is_renewed(verifier: Verifier, tmp_path: Path) -> None:
    await verify(verifier, good(tmp_path))
    psutil.Process(verifier.pid).kill()
    for version in (2, 3):  # at most the first of them may notice
        try:
            await verify(verifier, good(tmp_path, version))
        except ArtefactRefusedError:
            assert version == 2


async def test_a_check_whose_caller_leaves_does_not_answer_the_next_one(verifier: Verifier, tmp_path: Path) -> None:
    await verify(verifier, good(tmp_path))
    check = asyncio.ensure_future(verify(verifier, endless(tmp_path)))
    reader = await lasting_reader(verifier)
    check.cancel()
    with pytest.raises(asyncio.CancelledError):
        await check
    assert version_of(await verify(verifier, good(tmp_path, 2))) == 2
    await until(lambda: not reader.is_running())


async def test_the_verifier_knows_no_secret_of_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    verifier = Verifier(limits())
    await verify(verifier, good(tmp_path))
    assert "SECRET_TOKEN" not in psutil.Process(verifier.pid).environ()
    await verifier.stop()


async def test_the_verifier_leaves_when_nobody_asks_any_more(tmp_path: Path) -> None:
    verifier = Verifier(limits())
    await verify(verifier, good(tmp_path))
    process = psutil.Process(verifier.pid)
    await verifier.stop()
    assert not process.is_running()
