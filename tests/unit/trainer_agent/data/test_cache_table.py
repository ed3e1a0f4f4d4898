"""What is in the cache, and what goes first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tiercel.trainer_agent.data.cache_table import CacheTable, Entry
from tiercel.trainer_agent.data.transfer import FetchError


def table_in(folder: Path, quota: int = 300) -> CacheTable:
    """A cache in which three files fit."""
    table = CacheTable(folder, quota, 0)
    table.load()
    return table


def put(table: CacheTable, url: str, run_id: str = "run-1") -> Entry:
    """A file of a hundred bytes arrives, for a run."""
    place, content = table.begin()
    (content / "x").write_bytes(url.encode() * 100)
    table.grow(place, 100)
    return table.finish(run_id, place, Entry(url, "1", url * 64, 100, 1, "x"))


def take(table: CacheTable, url: str, run_id: str = "run-2") -> Entry | None:
    """Have a file for a run, if it is there."""
    return table.take(run_id, lambda entry: entry.url == url)


def test_the_least_recently_used_goes_first_and_nothing_that_a_run_uses(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    a, b, c = put(table, "a", "a-1"), put(table, "b", "b-1"), put(table, "c", "c-1")
    table.release("b-1")
    table.release("c-1")
    assert take(table, "b", "b-2") == b
    table.release("b-2")
    d = put(table, "d", "d-1")
    assert [each.path.exists() for each in (a, b, c, d)] == [True, True, False, True]
    table.hold("b-3", "b")
    place, _ = table.begin()
    with pytest.raises(FetchError, match="the node's cache is full: runs use all that it may have") as caught:
        table.grow(place, 1)
    assert caught.value.again
    table.abandon(place)
    table.make_room()
    assert [each.path.exists() for each in (a, b, d)] == [True, True, True]
    for run_id in ("a-1", "b-3", "d-1"):
        table.release(run_id)
    table.make_room()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert take(table, "a") is None


def test_the_order_outlives_the_agent(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    for age, url in enumerate("cab"):
        entry = put(table, url)
        os.utime(entry.place / "record.json", (100 + age, 100 + age))
    table = table_in(tmp_path)
    assert take(table, "c") is not None
    table.release("run-2")
    put(table, "d")
    assert [url for url in "abcd" if take(table, url)] == ["b", "c", "d"]


def test_what_is_on_its_way_counts(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    old = put(table, "a")
    table.release("run-1")
    one, _ = table.begin()
    other, _ = table.begin()
    table.grow(one, 150)
    assert old.path.exists()
    table.grow(other, 100)
    assert not old.path.exists()
    with pytest.raises(FetchError):
        table.grow(one, 201)


def test_the_same_version_that_comes_again_takes_the_place_of_what_was_there(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    first, second = put(table, "a", "a-1"), put(table, "a", "a-2")
    assert take(table, "a") == second
    assert first.path.exists(), "a run uses it"
    table.release("a-1")
    put(table, "b")
    put(table, "c")
    assert not first.path.exists(), "it goes first"
