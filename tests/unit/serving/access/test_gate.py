"""The gate: who is let through, who is told what, and what is remembered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tiercel.core import storage
from tiercel.core.endpoint_access import AccessTable, EndpointAccess, EndpointKey, EndpointRule
from tiercel.core.errors import NotAuthenticatedError, NotFoundError, RateExceededError, TiercelError
from tiercel.core.tokens import Token, hash_token
from tiercel.serving.access.callers import NOBODY, Caller
from tiercel.serving.access.gate import Gate
from tiercel.serving.operators import Operators

HERE = Caller("127.0.0.1", is_local=True)
OWNER = Caller("10.0.0.2", tenant="one")
OTHER = Caller("10.0.0.3", tenant="two")
STRANGER = Caller("10.0.0.4")
OPERATOR = b"Bearer " + b"o" * 32
GOOD = Token.draw("key").to_text()
FAST = Token.draw("key").to_text()


def key_of(text: str, per_second: float = 0.0, expires_at: float | None = None) -> EndpointKey:
    return EndpointKey(text.split("_")[2], hash_token(text), per_second, expires_at)


def shown(text: str) -> bytes:
    return f"Bearer {text}".encode()


RULES = (
    EndpointRule("open", "one", EndpointAccess.PUBLIC),
    EndpointRule("own", "one", EndpointAccess.TENANT),
    EndpointRule("locked", "one", EndpointAccess.KEY, (key_of(GOOD), key_of(FAST, 10.0))),
    EndpointRule("other", "two", EndpointAccess.KEY, (key_of(Token.draw("key").to_text()),)),
)


class Door:
    """A gate by a file, and the time."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "access.json"
        self.steady, self.clock = 100.0, 1_000_000.0
        self.write(RULES)
        self.gate = self.another()

    def another(self) -> Gate:
        return Gate(Operators("o" * 32), self.file, lambda: self.steady, lambda: self.clock)

    def write(self, rules: tuple[EndpointRule, ...]) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(storage.to_json(AccessTable(rules)))
        new.replace(self.file)

    def ask(self, caller: Caller, model: str, authorization: bytes = b"") -> type[TiercelError] | None:
        try:
            self.gate.check(caller, model, authorization)
        except TiercelError as error:
            return type(error)
        return None


@pytest.fixture
def door(tmp_path: Path) -> Door:
    return Door(tmp_path)


@pytest.mark.parametrize(
    ("caller", "passes"),
    [
        (HERE, {"open", "own", "unlisted"}),
        (OWNER, {"open", "own"}),
        (OTHER, {"open"}),
        (STRANGER, {"open"}),
        (NOBODY, {"open"}),
    ],
)
def test_who_shows_nothing_passes_where_it_may(door: Door, caller: Caller, passes: set[str]) -> None:
    models = ("open", "own", "locked", "other", "unlisted", "_own.small", "_locked.small")
    passes = passes | {f"_{each}.small" for each in passes & {"own"}}
    assert {model for model in models if door.ask(caller, model) is None} == passes
    assert {model for model in models if door.gate.sees(caller, model, b"")} == passes


def test_a_key_is_good_for_its_endpoint_alone_wherever_it_is_shown(door: Door) -> None:
    for caller in (HERE, OWNER, OTHER, STRANGER):
        assert door.ask(caller, "locked", shown(GOOD)) is None
        assert door.ask(caller, "_locked.small", shown(GOOD)) is None
        assert door.gate.sees(caller, "locked", shown(GOOD))
        assert door.ask(caller, "other", shown(GOOD)) in {NotFoundError, NotAuthenticatedError}
        assert not door.gate.sees(caller, "other", shown(GOOD))
    assert door.ask(STRANGER, "own", shown(GOOD)) is NotFoundError


@pytest.mark.parametrize(
    "wrong",
    [
        b"", b"Bearer", b"Bearer ", GOOD.encode(), b"Basic " + GOOD.encode(), shown(GOOD[:-1]), shown(GOOD + "0"),
        shown(GOOD[:20]), b"Bearer  " + GOOD.encode(), shown(GOOD) + b", " + shown(GOOD), shown("é" * 73),
        b"Bearer " + b"x" * 16_000, b"\xff" * 80, shown(Token.draw("key").to_text()),
        shown(Token.draw("user").to_text()),
    ],
    ids=lambda _: "",
)  # fmt: skip
def test_what_is_no_key_of_it_is_refused_and_not_remembered(door: Door, wrong: bytes) -> None:
    assert door.ask(HERE, "locked", wrong) is NotAuthenticatedError
    assert door.ask(OWNER, "locked", wrong) is NotAuthenticatedError
    assert door.ask(STRANGER, "locked", wrong) is NotFoundError
    assert not door.gate._granted


def test_strangers_are_told_the_same_of_what_is_there_and_what_is_not(door: Door) -> None:
    def words(model: str, authorization: bytes) -> str:
        with pytest.raises(NotFoundError) as refused:
            door.gate.check(OTHER, model, authorization)
        return refused.value.message.replace(model, "MODEL")

    for authorization in (b"", shown(Token.draw("key").to_text())):
        assert len({words(model, authorization) for model in ("own", "locked", "nothing", "_own.small")}) == 1


def test_a_key_asks_as_often_as_it_is_good_for_and_no_more(door: Door) -> None:
    taken = [door.ask(STRANGER, "locked", shown(FAST)) for _ in range(15)]
    assert taken == [None] * 10 + [RateExceededError] * 5
    with pytest.raises(RateExceededError) as refused:
        door.gate.check(STRANGER, "locked", shown(FAST))
    assert 0 < refused.value.seconds <= 0.1
    door.steady += 0.5
    assert [door.ask(STRANGER, "locked", shown(FAST)) for _ in range(6)] == [None] * 5 + [RateExceededError]
    assert door.ask(STRANGER, "locked", shown(GOOD)) is None, "another key is not to blame"
    assert {use["id"]: use["requests"] for use in door.gate.uses()} == {FAST.split("_")[2]: 22, GOOD.split("_")[2]: 1}


async def test_the_table_changes_and_what_was_counted_stays_counted(door: Door) -> None:
    for _ in range(10):
        assert door.ask(STRANGER, "locked", shown(FAST)) is None
    door.write((*RULES, EndpointRule("more", "two", EndpointAccess.PUBLIC)))
    await door.gate.look()
    assert door.ask(STRANGER, "more") is None
    assert door.ask(STRANGER, "locked", shown(FAST)) is RateExceededError


async def test_a_key_that_is_revoked_is_good_for_nothing(door: Door) -> None:
    assert door.ask(HERE, "locked", shown(GOOD)) is None
    door.write(tuple(replace(rule, keys=()) for rule in RULES))
    await door.gate.look()
    assert door.ask(HERE, "locked", shown(GOOD)) is NotAuthenticatedError


async def test_a_key_runs_out_without_anybody_writing_anything(door: Door) -> None:
    late = Token.draw("key").to_text()
    door.write((replace(RULES[2], keys=(key_of(GOOD), key_of(late, expires_at=door.clock + 60))),))
    await door.gate.look()
    assert door.ask(HERE, "locked", shown(late)) is None
    door.clock += 60.1
    await door.gate.look()
    assert door.ask(HERE, "locked", shown(late)) is NotAuthenticatedError
    assert door.ask(HERE, "locked", shown(GOOD)) is None
    door.gate = door.another()
    assert door.ask(HERE, "locked", shown(late)) is NotAuthenticatedError, "and so after a restart"


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-10])


def _wrong_type(file: Path) -> None:
    file.write_text('{"endpoints": [{"endpoint": "open", "tenant": "one", "access": "everybody"}]}')


def _without_tenant(file: Path) -> None:
    file.write_text('{"endpoints": [{"endpoint": "own", "tenant": "", "access": "tenant"}]}')


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    "damage", [Path.unlink, _cut, _wrong_type, _without_tenant, _folder, lambda file: file.write_bytes(b"\xff\0")]
)
async def test_without_its_table_the_gate_is_shut_and_opens_again(door: Door, damage: Callable[[Path], object]) -> None:
    damage(door.file)
    await door.gate.look()
    for gate in (door.gate, door.another()):
        for caller in (HERE, OWNER):
            for model in ("open", "own", "locked", "unlisted"):
                with pytest.raises(TiercelError):
                    gate.check(caller, model, shown(GOOD))
                assert not gate.sees(caller, model, shown(GOOD))
        gate.check(STRANGER, "locked", OPERATOR)
    if door.file.is_dir():
        door.file.rmdir()
    door.write(RULES)
    await door.gate.look()
    assert door.ask(HERE, "own") is None
    assert door.ask(STRANGER, "locked", shown(GOOD)) is None


def test_ten_thousand_wrong_keys_are_limited_and_leave_nothing_behind(door: Door) -> None:
    wrong = [Token.draw("key").to_text() for _ in range(20)]
    found = [door.ask(STRANGER, "locked", shown(wrong[turn % 20])) for turn in range(10_000)]
    assert found.count(NotFoundError) <= 21
    assert found.count(RateExceededError) == 10_000 - found.count(NotFoundError)
    assert not door.gate._granted
    assert door.ask(STRANGER, "locked", shown(GOOD)) is None, "who has a good one is not kept out by others"
    for number in range(5000):
        door.ask(Caller(f"10.1.{number // 250}.{number % 250}"), "locked", shown(wrong[0]))
    assert len(door.gate._wrong) <= 1024


def test_what_is_remembered_of_valid_keys_is_bounded(door: Door) -> None:
    schemes = [bytes(letter - 32 * (bits >> at & 1) for at, letter in enumerate(b"bearer")) for bits in range(64)]
    door.write((RULES[2], *(EndpointRule(f"e{n}", "one", EndpointAccess.KEY, (key_of(GOOD),)) for n in range(3))))
    for _ in range(100):
        for scheme in schemes:
            assert door.ask(HERE, "locked", scheme + b" " + GOOD.encode()) is None
    assert len(door.gate._granted) <= 4096


def test_operators_pass_everywhere_and_nobody_is_one_where_there_is_no_token(door: Door) -> None:
    for model in ("open", "own", "locked", "other", "unlisted"):
        assert door.ask(STRANGER, model, OPERATOR) is None
        assert door.gate.sees(STRANGER, model, OPERATOR)
    gate = Gate(Operators(), door.file)
    for authorization in (b"", b"Bearer ", OPERATOR):
        with pytest.raises(NotFoundError):
            gate.check(STRANGER, "locked", authorization)


def test_what_tells_of_all_models_is_for_this_machine_and_operators(door: Door) -> None:
    door.gate.check_overview(HERE, b"")
    door.gate.check_overview(STRANGER, OPERATOR)
    for caller in (OWNER, STRANGER):
        with pytest.raises(NotAuthenticatedError):
            door.gate.check_overview(caller, shown(GOOD))


def test_without_a_file_everybody_passes() -> None:
    gate = Gate(Operators("o" * 32))
    gate.check(STRANGER, "anything", b"")
    gate.check_overview(STRANGER, b"")
    assert gate.sees(STRANGER, "anything", b"")


def test_refusals_are_counted_by_reason(door: Door) -> None:
    door.ask(HERE, "locked")
    door.ask(HERE, "locked", shown(GOOD[:-1]))
    door.ask(OTHER, "own")
    assert door.gate.refusals == {"no_key": 1, "key": 1, "tenant": 1}
