"""Which variables packages are seen to read when they are imported."""

from __future__ import annotations

import os
import types

import pytest

from tiercel.trainer_agent.runtimes.warm.preloading import WatchedVariables, why_not_like_this

AT_START = {"HOME": "/nowhere", "PATH": "/bin"}


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> WatchedVariables:
    monkeypatch.setattr(WatchedVariables, "read", set())
    monkeypatch.setattr(WatchedVariables, "beginnings", set())
    content = {os.fsencode(name): os.fsencode(value) for name, value in AT_START.items()}
    return WatchedVariables(content, os.fsencode, os.fsdecode, os.fsencode, os.fsdecode)


def progress_bars(variables: WatchedVariables) -> types.ModuleType:
    """A package that looks through all variables when it is imported, as tqdm does."""
    module = types.ModuleType("bars.settings")
    vars(module)["variables"] = variables
    exec("found = {n: v for n, v in variables.items() if n.startswith('BARS_')}", vars(module))
    return module


def test_who_asks_for_a_variable_is_noted(variables: WatchedVariables) -> None:
    assert variables["PATH"] == "/bin"
    assert "takes effect" in why_not_like_this(AT_START | {"PATH": "/usr/bin"}, AT_START, {})
    assert why_not_like_this(AT_START | {"SEED": "7"}, AT_START, {}) == ""


def test_who_looks_through_all_reads_those_of_its_own_name(variables: WatchedVariables) -> None:
    assert progress_bars(variables).found == {}
    assert WatchedVariables.read == set()  # HOME above all, which is another one in each run
    assert why_not_like_this(AT_START | {"SEED": "7", "HOME": "/run"}, AT_START, {}) == ""
    assert "BARS_OFF" in why_not_like_this(AT_START | {"BARS_OFF": "1"}, AT_START, {})


def test_what_is_looked_through_is_all_there_is(variables: WatchedVariables) -> None:
    assert dict(variables.items()) == AT_START
