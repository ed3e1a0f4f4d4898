from __future__ import annotations

import pytest

from testing.calls import call_of
from tiercel.core.errors import CapacityExceededError, InvalidRequestError
from tiercel.serving.accounting.accounts import Account, ModelShare, read_shares
from tiercel.serving.accounting.room import Room


def test_an_account_without_a_cap_may_always_run() -> None:
    account = Account("m")
    account.charge(100.0)
    assert account.may_run(0.0)
    assert account.cpu_seconds == 100.0


def test_a_cap_is_earned_with_time_and_may_be_overdrawn_by_one_call() -> None:
    account = Account("m")
    account.declare(ModelShare(cpu_cap_cores=0.5), now=10.0)
    assert account.may_run(10.0)
    account.charge(1.05)  # 0.05 s were saved up
    assert not account.may_run(10.0)
    assert account.seconds_until_it_may() == pytest.approx(2.0, abs=1e-3)
    assert not account.may_run(11.9)
    assert account.may_run(12.1)


def test_what_is_not_used_is_saved_up_for_a_tenth_of_a_second_only() -> None:
    account = Account("m")
    account.declare(ModelShare(cpu_cap_cores=0.5), now=0.0)
    assert account.may_run(1000.0)
    account.charge(0.06)
    assert not account.may_run(1000.0)


def test_the_same_share_again_gives_no_new_savings() -> None:
    account = Account("m")
    account.declare(ModelShare(cpu_cap_cores=0.5), now=0.0)
    account.charge(1.0)
    account.declare(ModelShare(cpu_cap_cores=0.5), now=0.0)
    assert not account.may_run(0.5)


def test_debt_is_forgiven_when_the_cap_is_lifted_and_counted_anew_when_it_comes_back() -> None:
    account = Account("m")
    account.declare(ModelShare(cpu_cap_cores=0.1), now=0.0)
    account.charge(50.0)
    account.declare(ModelShare(), now=0.0)
    assert account.may_run(0.0)
    account.declare(ModelShare(cpu_cap_cores=0.1), now=1.0)
    assert account.may_run(1.0)


def test_one_call_in_eight_is_measured_on_the_event_loop() -> None:
    account = Account("m")
    assert [account.is_sampled() for _ in range(17)] == [n % 8 == 0 for n in range(17)]


def test_room_is_bounded_in_calls_and_bytes_and_comes_back() -> None:
    room = Room(2, 100)
    room.take(1000)  # one always fits
    with pytest.raises(CapacityExceededError, match="1 requests are waiting already"):
        room.take(1)
    room.give_back(1000)
    room.take(50)
    room.take(50)
    with pytest.raises(CapacityExceededError):
        room.take(0)


def test_who_could_not_be_answered_in_half_of_its_time_is_not_let_in() -> None:
    account = Account("m")
    account.check_wait(1e-9)  # nobody waits
    for moment in (0.0, 1.0):
        account.drain.drained(10, moment, backlog=True)  # 0.1 s a row
    account.waiting.add(call_of("m", rows=4))
    account.running = 3
    account.check_wait(allowed=1.61)  # 8 rows with its own: 0.8 s
    with pytest.raises(CapacityExceededError, match=r"about 0\.8 seconds"):
        account.check_wait(allowed=1.59)
    account.check_wait(allowed=2.21, rows=4)
    with pytest.raises(CapacityExceededError):
        account.check_wait(allowed=2.19, rows=4)


def test_an_objective_is_read_and_limits_nothing() -> None:
    shares = read_shares({"models": {"a": {"objective_seconds": 0.02}, "b": {"cpu_weight": 0.5}}})
    assert shares["a"] == ModelShare(objective_seconds=0.02)
    assert shares["b"] == ModelShare(cpu_weight=0.5)


def test_delays_are_judged_by_the_share_that_was_declared_last() -> None:
    account = Account("m")
    account.declare(ModelShare(objective_seconds=0.1), now=0.0)
    account.delays.answered(0.05, 1.0)
    assert account.as_json(1.0)["windows"][0]["in_objective"] == 1.0
    account.declare(ModelShare(objective_seconds=0.01), now=1.0)
    line = account.as_json(1.0)
    assert line["windows"][0]["in_objective"] == 0.0
    assert (line["objective_seconds"], line["on_time"], line["answers"], line["failures"]) == (0.01, 0, 1, 0)


def test_an_account_has_changed_when_something_was_counted_or_is_being_answered() -> None:
    account = Account("m")
    assert not account.changed_since(0.0)
    account.requests += 1
    assert account.changed_since(1e9)
    account.delays.failed(5.0)
    assert (account.changed_since(5.0), account.changed_since(5.1)) == (True, False)


def test_shares_are_read() -> None:
    content = {"models": {"a": {"cpu_weight": 1, "cpu_cap_cores": 0.5}, "b": {}, "c": {"cpu_cap_cores": None}}}
    assert read_shares(content) == {"a": ModelShare(1.0, 0.5), "b": ModelShare(), "c": ModelShare()}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({}, "the body must be"),
        ({"models": []}, "the body must be"),
        ({"models": {}, "more": 1}, "the body must be"),
        ({"models": {"a": 1}}, "models.a: "),
        ({"models": {"a": {"cores": 1}}}, "models.a: "),
        ({"models": {"a": {"cpu_weight": 0}}}, "models.a.cpu_weight must be above 0"),
        ({"models": {"a": {"cpu_weight": 1.5}}}, "models.a.cpu_weight"),
        ({"models": {"a": {"cpu_weight": True}}}, "models.a.cpu_weight"),
        ({"models": {"a": {"cpu_cap_cores": 0}}}, "models.a.cpu_cap_cores must be a number of cores above 0"),
        ({"models": {"a": {"cpu_cap_cores": "1"}}}, "models.a.cpu_cap_cores"),
        ({"models": {"a": {"objective_seconds": 0}}}, "models.a.objective_seconds must be a number of seconds above 0"),
        ({"models": {"a": {"objective_seconds": True}}}, "models.a.objective_seconds"),
    ],
)
def test_other_shares_are_refused(content: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        read_shares(content)
