"""Codes and sessions are few, and last for a while."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tiercel.broker.access.sign_in import (
    CODE_SECONDS,
    MOST_CODES_OF_A_TOKEN,
    MOST_SESSIONS_OF_A_TOKEN,
    SESSION_SECONDS,
    SignIn,
)
from tiercel.broker.store.sealing import Sealer
from tiercel.broker.store.sessions import SessionStore
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.core.errors import NotAuthenticatedError


class Time:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SessionStore]:
    async with Store(sqlite_url(tmp_path / "broker.sqlite")) as database:
        yield SessionStore(database)


@pytest.fixture
def sealer() -> Sealer:
    return Sealer(bytes(32))


def test_a_code_is_good_once_and_soon(store: SessionStore, sealer: Sealer) -> None:
    time = Time()
    sign_in = SignIn(store, sealer, time)
    code, ends_at = sign_in.make_code("token")
    assert ends_at == 1000.0 + CODE_SECONDS
    assert sign_in.take_code(code) == "token"
    late, _ = sign_in.make_code("token")
    time.now += CODE_SECONDS
    for gone in (code, late, "", "guessed"):
        with pytest.raises(NotAuthenticatedError, match="tiercel dashboard"):
            sign_in.take_code(gone)


async def test_the_oldest_goes_where_one_token_has_too_many(store: SessionStore, sealer: Sealer) -> None:
    sign_in = SignIn(store, sealer, Time())
    codes = [sign_in.make_code("token")[0] for _ in range(MOST_CODES_OF_A_TOKEN + 1)]
    sessions = [await sign_in.open("token") for _ in range(MOST_SESSIONS_OF_A_TOKEN + 1)]
    assert [bool(sign_in.token_of(each)) for each in sessions] == [False, *[True] * MOST_SESSIONS_OF_A_TOKEN]
    with pytest.raises(NotAuthenticatedError):
        sign_in.take_code(codes[0])
    assert sign_in.take_code(codes[1]) == "token"


async def test_the_oldest_goes_where_there_are_too_many_and_all_end(
    store: SessionStore, sealer: Sealer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiercel.broker.access.sign_in.MOST_SESSIONS", 5)
    time = Time()
    sign_in = SignIn(store, sealer, time)
    sessions = [await sign_in.open(f"token {number}") for number in range(6)]
    assert [sign_in.token_of(each) for each in sessions[:2]] == ["", "token 1"]
    await sign_in.close(sessions[1])
    assert sign_in.token_of(sessions[1]) == ""
    assert len(await store.load()) == 4
    time.now += SESSION_SECONDS
    assert sign_in.token_of(sessions[-1]) == ""
    await sign_in.open("another")
    assert len(await store.load()) == 1


async def test_sessions_outlive_the_broker_but_not_its_key(store: SessionStore, sealer: Sealer) -> None:
    before = SignIn(store, sealer, Time())
    kept, closed = await before.open("token"), await before.open("token")
    await before.close(closed)
    assert all(b"token" not in each.sealed and kept not in each.sha256 for each in await store.load())
    for key, found in ((sealer, "token"), (Sealer(bytes(31) + b"x"), "")):
        after = SignIn(store, key, Time())
        await after.start()
        assert (after.token_of(kept), after.token_of(closed)) == (found, "")
