"""Copies of the database in the artefact store: a few stay, and with the newest all that it speaks of."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from testing.artefacts import MemoryArtefacts
from testing.clock import ManualClock
from tiercel.broker.actors.artefacts.database import DatabaseKeeper
from tiercel.broker.actors.artefacts.keeper import ArtefactKeeper
from tiercel.broker.actors.artefacts.own import OwnArtefacts
from tiercel.broker.store.artefacts import failures
from tiercel.broker.store.artefacts.databases import KEPT_DATABASES
from tiercel.broker.store.artefacts.ownership import Ownership
from tiercel.broker.store.policy import PolicyStore
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.core.errors import CannotWriteError

INTERVAL = 600.0


@dataclass
class Needs:
    """What else is kept: just names."""

    names: set[str] = field(default_factory=set)

    async def look(self) -> None:
        pass

    def needed(self) -> set[str]:
        return set(self.names)

    async def tell(self, problem: str) -> None:
        pass


@dataclass
class Kept:
    """A database, and what is kept of it."""

    artefacts: MemoryArtefacts
    others: Needs
    clock: ManualClock
    database: Path

    def life(self) -> ArtefactKeeper:
        """The keeper of another life of the broker."""
        own = OwnArtefacts(self.artefacts, Ownership(self.artefacts, "database", str(id(object()))), self.clock)
        database = DatabaseKeeper(own, [self.others], self.database, self.clock, INTERVAL)
        return ArtefactKeeper(own, [self.others, database], self.clock)

    async def change(self, name: str) -> None:
        """Something is written into the database."""
        async with Store(sqlite_url(self.database)) as store:
            await PolicyStore(store).put(name, {})


@pytest.fixture
async def kept(tmp_path: Path) -> Kept:
    found = Kept(MemoryArtefacts(), Needs(), ManualClock(), tmp_path / "broker.sqlite")
    await found.change("first")
    return found


async def test_the_newest_few_stay_and_one_that_is_the_same_is_not_put_again(kept: Kept) -> None:
    keeper = kept.life()
    for number in range(KEPT_DATABASES + 2):
        await kept.change(f"number {number}")
        for _ in range(2):
            await keeper.look()
            kept.clock.advance(INTERVAL)
    assert len(kept.artefacts.contents) == KEPT_DATABASES
    assert kept.artefacts.calls.count("put") == KEPT_DATABASES + 2
    await kept.life().look()
    assert len(kept.artefacts.contents) == KEPT_DATABASES, "the next life knows them"
    assert [path.name for path in kept.database.parent.iterdir()] == ["broker.sqlite"]


async def test_what_the_newest_copy_speaks_of_stays_until_there_is_a_newer_one(kept: Kept) -> None:
    old, new = "0" * 64, "1" * 64
    keeper = kept.life()
    kept.artefacts.contents = {old: b"checkpoint"}
    kept.others.names = {old}
    await keeper.look()
    kept.others.names, kept.artefacts.contents[new] = {new}, b"newer"
    await keeper.look()
    assert old in kept.artefacts.contents
    kept.clock.advance(INTERVAL)
    await kept.change("second")
    await keeper.look()
    assert old not in kept.artefacts.contents


async def test_a_store_that_is_full_gets_room_again(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.artefacts.contents = {"0" * 64: b"of a job that is over"}
    keeper = kept.life()

    async def full(*_: object) -> None:
        raise failures.full("memory", "no space")

    with monkeypatch.context() as patched:
        patched.setattr(kept.artefacts, "put", full)
        with pytest.raises(CannotWriteError):
            await keeper.look()
    assert not kept.artefacts.contents, "nothing would ever be removed"
    await keeper.look()
    assert len(kept.artefacts.contents) == 1
