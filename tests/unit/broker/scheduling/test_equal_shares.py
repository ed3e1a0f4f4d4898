"""Equal sharing beside the real cluster; all figures by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tiercel.broker.scheduling.equal_shares import Account, FairClock, Place, advanced, fair_finishes


def wanted(total: float, submitted_at: float = 0.0, cores: float = 1.0, memory: int = 0) -> Account:
    return Account(submitted_at, cores, total, memory)


def places(memory: int = 0, **cores: float) -> dict[str, Place]:
    return {name: Place(count, memory) for name, count in cores.items()}


def speed(share: float) -> float:
    """Work a second with a share of a core: what others on it cost is 28 % of the part that they have."""
    return share * (1 - 0.28 * (1 - share))


def test_equal_sharing_is_foretold() -> None:
    # Three jobs of one thread on two cores: 2/3 each. a (2 s) is over first; then both others run at full speed.
    clock = advanced(FairClock(), 0.0, places(n=2.0), {"a": wanted(2), "b": wanted(6), "c": wanted(10)})
    over = 2 / speed(2 / 3)
    assert fair_finishes(clock, places(n=2.0)) == pytest.approx({"a": over, "b": over + 4, "c": over + 8})


def test_time_passes_in_the_virtual_cluster() -> None:
    jobs = {"a": wanted(2), "b": wanted(6), "c": wanted(10)}
    clock = advanced(advanced(FairClock(), 0.0, places(n=2.0), jobs), 1.5, places(n=2.0), jobs)
    assert [account.attained for account in clock.accounts.values()] == pytest.approx([1.5 * speed(2 / 3)] * 3)
    over = 2 / speed(2 / 3)
    assert fair_finishes(clock, places(n=2.0)) == pytest.approx({"a": over, "b": over + 4, "c": over + 8})


def test_a_job_that_is_over_goes_on_virtually_and_then_leaves() -> None:
    nodes = places(n=1.0)
    clock = advanced(FairClock(), 0.0, nodes, {"a": wanted(4), "b": wanted(4)})
    # a is really over after 4 s; under equal sharing it has had less than 2 s, and still takes half of the core
    clock = advanced(clock, 4.0, nodes, {"b": wanted(4)})
    assert fair_finishes(clock, nodes) == pytest.approx({"a": 4 / speed(1 / 2), "b": 4 / speed(1 / 2)})
    clock = advanced(clock, 9.5, nodes, {"b": wanted(4)})
    clock = advanced(clock, 10.0, nodes, {"b": wanted(4)})
    assert set(clock.accounts) == {"b"}


def test_who_turns_out_to_need_more_is_due_that_much_later() -> None:
    nodes = places(n=1.0)
    clock = advanced(FairClock(), 0.0, nodes, {"a": wanted(4)})
    clock = advanced(clock, 10.0, nodes, {"a": wanted(4)})
    assert fair_finishes(clock, nodes)["a"] == pytest.approx(4)
    clock = advanced(clock, 20.0, nodes, {"a": wanted(12)})  # attained 10 by then: over at 4 for 4, so at 4 * 12 / 10
    assert fair_finishes(clock, nodes)["a"] == pytest.approx(4.8)


def test_new_jobs_go_where_the_fewest_are_per_core() -> None:
    nodes = places(big=4.0, small=1.0)
    clock = advanced(FairClock(), 0.0, nodes, {name: wanted(9) for name in "abcde"})
    assert [account.node_id for account in clock.accounts.values()] == ["big", "big", "big", "big", "small"]


def test_jobs_of_a_node_that_is_gone_go_elsewhere() -> None:
    clock = advanced(FairClock(), 0.0, places(m=1.0, n=1.0), {"a": wanted(9), "b": wanted(9)})
    clock = advanced(clock, 1.0, places(n=1.0), {"a": wanted(9), "b": wanted(9)})
    assert {account.node_id for account in clock.accounts.values()} == {"n"}


def test_a_wide_job_takes_more_than_narrow_ones() -> None:
    # 3 cores for a job of four and two of one: half of what each could use.
    jobs = {"narrow1": wanted(9), "narrow2": wanted(9), "wide": wanted(9, cores=4.0)}
    clock = advanced(advanced(FairClock(), 0.0, places(n=3.0), jobs), 1.0, places(n=3.0), jobs)
    assert {name: account.attained for name, account in clock.accounts.items()} == pytest.approx(
        {"narrow1": speed(1 / 2), "narrow2": speed(1 / 2), "wide": 4 * speed(1 / 2)}
    )


def test_who_finds_no_memory_waits_there_as_well() -> None:
    # Two of three fit: the first is over after 4.7 s at half a core, then the third goes on beside the second.
    jobs = {"a": wanted(2, memory=1), "b": wanted(6, memory=1), "c": wanted(2, memory=1)}
    nodes = places(memory=2, n=1.0)
    clock = advanced(FairClock(), 0.0, nodes, jobs)
    assert {name: account.began for name, account in clock.accounts.items()} == {"a": True, "b": True, "c": False}
    over = 2 / speed(1 / 2)
    assert fair_finishes(clock, nodes) == pytest.approx({"a": over, "c": 2 * over, "b": 2 * over + 2})
    clock = advanced(clock, over + 1e-6, nodes, jobs)
    assert clock.accounts["c"].began
    assert fair_finishes(clock, nodes) == pytest.approx({"a": over, "c": 2 * over, "b": 2 * over + 2}, abs=1e-5)


def test_who_waits_begins_where_memory_is_left_first() -> None:
    # Each node holds one: c is meant for m, but n is left first.
    jobs = {"a": wanted(9, memory=1), "b": wanted(2, memory=1), "c": wanted(2, memory=1)}
    nodes = places(memory=1, m=1.0, n=1.0)
    clock = advanced(FairClock(), 0.0, nodes, jobs)
    assert [(account.node_id, account.began) for account in clock.accounts.values()] == [
        ("m", True),
        ("n", True),
        ("m", False),
    ]
    clock = advanced(clock, 2.0, nodes, jobs)
    assert clock.accounts["c"] == replace(jobs["c"], node_id="n", began=True)


def test_who_fits_nowhere_is_due_at_no_time() -> None:
    nodes = places(memory=1, n=1.0)
    clock = advanced(FairClock(), 0.0, nodes, {"a": wanted(2, memory=1), "large": wanted(2, memory=2)})
    assert set(fair_finishes(clock, nodes)) == {"a"}
