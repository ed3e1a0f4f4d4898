"""One name for one thing (docs/glossary.md), and no more words than needed about what is private."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
FILES = [path for room in ("broker", "core", "serving", "trainer_agent") for path in (REPOSITORY / room).rglob("*.py")]

# Names that were given up, and what is said in their place.
GIVEN_UP = {
    "retelling": "replay",
    "tidying": "pruning",
    "outlook": "forecast",
    "line_up": "queue",
    "contest": "arbitration",
    "modest_forks": "forkserver",
    "skeleton": "strip_weights",
    "take_in": "ingest",
    "see_through": "shield",
    "reshared": "ShareUpdated",
    "reach_judged": "TierFeasibilityChanged",
    "kept_waiting": "Deferred",
    "carrier": "transfer",
    "ledger": "log, account",
    "endpoint_book": "endpoint states",
    "octet": "byte",
}


@functools.cache
def names_and_wordy(path: Path) -> tuple[frozenset[str], tuple[str, ...]]:
    """All names that a file gives or uses, and what is private and told of in more than a line."""
    names, wordy = set[str](), []
    for node in ast.walk(ast.parse(path.read_text())):
        names.update(
            value for field in ("name", "id", "attr", "arg") if isinstance(value := getattr(node, field, 0), str)
        )
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.name.startswith("_")
            and not node.name.startswith("__")
            and "\n" in (ast.get_docstring(node) or "")
        ):
            wordy.append(node.name)
    return frozenset(names), tuple(wordy)


def test_names_that_were_given_up_do_not_come_back() -> None:
    given_up = [word.replace("_", "") for word in GIVEN_UP]
    found = [
        f"{path.relative_to(REPOSITORY)}: {name}"
        for path in FILES
        for name in {*names_and_wordy(path)[0], path.stem}
        for word in given_up
        if word in name.replace("_", "").lower()
    ]
    assert not found, f"docs/glossary.md has the words: {GIVEN_UP}"


@pytest.mark.parametrize("room", ["broker", "core", "serving", "trainer_agent"])
def test_what_is_private_is_told_of_in_a_line(room: str) -> None:
    long = [
        f"{path.relative_to(REPOSITORY)}: {name}"
        for path in (REPOSITORY / room).rglob("*.py")
        for name in names_and_wordy(path)[1]
    ]
    assert not long
