"""What every artefact store does: content under its own name, whole or not at all, whatever is in its place."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import pytest

from tests.contract.broker.store.artefacts.conftest import Place
from tiercel.broker.store.artefacts.contract import DATABASES_MARK, MAX_MARK_BYTES
from tiercel.broker.store.artefacts.ownership import Ownership
from tiercel.broker.store.artefacts.s3 import PART_BYTES
from tiercel.core.checkpoints import Artefact
from tiercel.core.errors import ConflictError, NotFoundError, StoreDamagedError

SECONDS = 30.0
LARGE = bytes(range(256)) * (PART_BYTES // 256) + b"and a little more"


def artefact_of(content: bytes) -> Artefact:
    return Artefact(hashlib.sha256(content).hexdigest(), len(content))


@pytest.mark.parametrize("content", [b"x", b"what a run has learnt" * 1000, LARGE], ids=["a byte", "small", "in parts"])
async def test_what_was_put_is_there_and_comes_back(place: Place, content: bytes, tmp_path: Path) -> None:
    artefact, target = artefact_of(content), tmp_path / "back"
    assert not await place.artefacts.has(artefact, SECONDS)
    assert await place.artefacts.held(SECONDS) == {}
    for _ in range(2):  # twice is once
        await place.artefacts.put(artefact, io.BytesIO(content), SECONDS)
    assert await place.artefacts.has(artefact, SECONDS)
    assert not await place.artefacts.has(Artefact(artefact.sha256, len(content) + 1), SECONDS)
    assert await place.artefacts.held(SECONDS) == {artefact.sha256: len(content)}
    await place.artefacts.get(artefact, target, SECONDS)
    assert target.read_bytes() == content
    for _ in range(2):
        await place.artefacts.delete(artefact.sha256, SECONDS)
    assert await place.artefacts.held(SECONDS) == {}


@pytest.mark.parametrize(("content", "change"), [(b"small", b"!"), (LARGE, b"")], ids=["other", "shorter, in parts"])
async def test_what_is_not_as_it_was_said_to_be_is_not_put(place: Place, content: bytes, change: bytes) -> None:
    artefact = artefact_of(content)
    with pytest.raises(StoreDamagedError, match="was not stored"):
        await place.artefacts.put(artefact, io.BytesIO(content[:-1] + change), SECONDS)
    assert await place.artefacts.held(SECONDS) == {}
    assert not await place.artefacts.has(artefact, SECONDS)


async def test_longer_than_it_was_said_to_be_is_not_put(place: Place) -> None:
    with pytest.raises(StoreDamagedError, match="was not stored"):
        await place.artefacts.put(artefact_of(LARGE[:-1]), io.BytesIO(LARGE), SECONDS)
    assert await place.artefacts.held(SECONDS) == {}


@pytest.mark.parametrize("change", [b"", b"!", b"!!"], ids=["truncated", "wrong bytes", "too long"])
async def test_what_is_damaged_there_is_not_given_out(place: Place, change: bytes, tmp_path: Path) -> None:
    content, target = b"what a run has learnt", tmp_path / "back"
    artefact = artefact_of(content)
    await place.artefacts.put(artefact, io.BytesIO(content), SECONDS)
    place.put(artefact.sha256, content[:-1] + change)
    with pytest.raises(StoreDamagedError, match="damaged"):
        await place.artefacts.get(artefact, target, SECONDS)
    assert not target.exists()


async def test_what_is_not_there_is_said_to_be(place: Place, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="does not have"):
        await place.artefacts.get(artefact_of(b"x"), tmp_path / "back", SECONDS)
    assert not (tmp_path / "back").exists()
    await place.artefacts.delete(artefact_of(b"x").sha256, SECONDS)


async def test_what_others_have_left_there_is_left_alone(place: Place) -> None:
    content = b"ours"
    await place.artefacts.put(artefact_of(content), io.BytesIO(content), SECONDS)
    place.put("notes.txt", b"somebody else's")
    await place.artefacts.remove_unfinished(SECONDS)
    assert list(await place.artefacts.held(SECONDS)) == [artefact_of(content).sha256]


async def test_a_place_says_whose_it_is(place: Place) -> None:
    assert await place.artefacts.read_mark(SECONDS) is None
    await place.artefacts.write_mark(b"first", SECONDS, only_new=True)
    await place.artefacts.write_mark(b"second", SECONDS, only_new=True)
    assert await place.artefacts.read_mark(SECONDS) == b"first"
    await place.artefacts.write_mark(b"third", SECONDS, only_new=False)
    assert await place.artefacts.read_mark(SECONDS) == b"third"
    await place.artefacts.write_mark(b"[]", SECONDS, only_new=True, name=DATABASES_MARK)
    assert await place.artefacts.read_mark(SECONDS, name=DATABASES_MARK) == b"[]"
    assert await place.artefacts.read_mark(SECONDS) == b"third"
    assert await place.artefacts.held(SECONDS) == {}
    place.put("owner.json", b"x" * 10_000_000)
    assert await place.artefacts.read_mark(SECONDS) == b"x" * MAX_MARK_BYTES


async def test_one_broker_has_it_and_its_next_life_takes_it_over(place: Place) -> None:
    first, next_life = (Ownership(place.artefacts, "alice", life) for life in ("1", "2"))
    for _ in range(2):
        await first.ensure(SECONDS)
    await next_life.ensure(SECONDS)
    with pytest.raises(ConflictError, match="another broker with the same database"):
        await first.ensure(SECONDS)
    await next_life.ensure(SECONDS)
    with pytest.raises(ConflictError, match="is another broker's"):
        await Ownership(place.artefacts, "bob", "1").ensure(SECONDS)


async def test_a_mark_that_says_nothing_is_somebody_elses(place: Place) -> None:
    for mark in (b"", b"{", b"[]", b'{"broker": 1}', b"\xff", b"[" * 5000):
        await place.artefacts.write_mark(mark, SECONDS, only_new=False)
        with pytest.raises(ConflictError):
            await Ownership(place.artefacts, "alice", "1").ensure(SECONDS)
