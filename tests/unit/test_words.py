"""One name for one thing (docs/glossary.md), and no more words than needed about what is private."""

from __future__ import annotations

import ast
from collections.abc import Iterator
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


def names_in(tree: ast.AST) -> Iterator[str]:
    """All names that a file gives or uses."""
    for node in ast.walk(tree):
        yield from (
            value for field in ("name", "id", "attr", "arg") if isinstance(value := getattr(node, field, 0), str)
        )


def test_names_that_were_given_up_do_not_come_back() -> None:
    found = [
        f"{path.relative_to(REPOSITORY)}: {name}"
        for path in FILES
        for name in {*names_in(ast.parse(path.read_text())), path.stem}
        for word in GIVEN_UP
        if word.replace("_", "") in name.replace("_", "").lower()
    ]
    assert not found, f"docs/glossary.md has the words: {GIVEN_UP}"


@pytest.mark.parametrize("room", ["broker", "core", "serving", "trainer_agent"])
def test_what_is_private_is_told_of_in_a_line(room: str) -> None:
    long = [
        f"{path.relative_to(REPOSITORY)}: {node.name}"
        for path in (REPOSITORY / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and node.name.startswith("_")
        and not node.name.startswith("__")
        and "\n" in (ast.get_docstring(node) or "")
    ]
    assert not long
