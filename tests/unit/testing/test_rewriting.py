"""What is made of test files before the workers begin is what pytest would make, and it makes nothing anew."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook

from testing.rewriting import rewrite


def test_pytest_takes_it_and_makes_nothing_anew(
    tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)  # pytest would write what it makes
    file = tmp_path / "test_it.py"
    file.write_text("def test_it():\n    one = 1\n    assert one == 2\n")
    made = rewrite(file)
    number = made.stat().st_ino
    assert rewrite(file).stat().st_ino == number
    spec = AssertionRewritingHook(pytestconfig).find_spec("test_it", [str(tmp_path)])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(AssertionError, match="assert 1 == 2"):
        module.test_it()
    assert list(made.parent.iterdir()) == [made]
    assert made.stat().st_ino == number


def test_a_file_that_changed_is_made_anew(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text("A = 1\n")
    before = rewrite(file).read_bytes()
    file.write_text("A = 2\n")
    assert rewrite(file).read_bytes() != before
