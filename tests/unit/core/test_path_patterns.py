"""Patterns of paths: what they mean, and what is no pattern."""

from __future__ import annotations

import pytest

from tiercel.core.errors import InvalidSpecError
from tiercel.core.path_patterns import MAX_PATTERNS, PathPatterns, path_problem, validate_outputs


@pytest.mark.parametrize(
    ("pattern", "path", "meant"),
    [
        ("reports/*.html", "reports/a.html", True),
        ("reports/*.html", "reports/deep/a.html", False),
        ("reports/*.html", "a.html", False),
        ("*", "a", True),
        ("*", "a/b", True),  # a folder that is named: all that is in it
        ("tokenizer", "tokenizer/vocab/a.txt", True),
        ("tokenizer/", "tokenizer/a.txt", True),
        ("tokenizer", "tokenizers/a.txt", False),
        ("**", "a/b/c", True),
        ("**/*.png", "a.png", True),
        ("**/*.png", "a/b/c.png", True),
        ("a/**/z", "a/z", True),
        ("a/**/z", "a/b/c/z", True),
        ("a/**/z", "b/z", False),
        ("plot-[0-9].svg", "plot-7.svg", True),
        ("plot-[!0-9].svg", "plot-7.svg", False),
        ("?.txt", "ab.txt", False),
        ("A", "a", False),
        (".*", ".hidden", True),
        ("*.txt", "a.txt\n", False),
    ],
)
def test_what_a_pattern_means(pattern: str, path: str, meant: bool) -> None:
    assert PathPatterns([pattern]).matches(path) is meant


def test_folders_are_looked_into_only_where_something_may_be() -> None:
    patterns = PathPatterns(["reports/*.html", "a/**/z", "tokenizer"])
    assert [
        name for name in ("reports", "a", "a/b", "tokenizer", "tokenizer/x") if not patterns.may_match_below(name)
    ] == []
    assert [name for name in ("checkpoints", "reports/deep/er", "b") if patterns.may_match_below(name)] == []


def test_a_pattern_of_many_stars_takes_no_time() -> None:
    patterns = PathPatterns(["*a" * 100, "/".join(["**", "a"] * 15 + ["z"])])
    assert not patterns.matches("a" * 400 + "b")
    assert not patterns.matches("/".join(["a"] * 31 + ["b"]))


@pytest.mark.parametrize(
    "path", ["", "/a", "a//b", "a/", "../a", "a/../b", "./a", "a\nb", "a\udcff", "x" * 513, "a/" * 40]
)
def test_a_path_that_is_none_is_told(path: str) -> None:
    assert path_problem(path)


def test_paths_with_odd_names_are_paths() -> None:
    assert [path for path in ("a b", "ä/ß.txt", "...", "-rf", "a;b", "$(x)") if path_problem(path)] == []


@pytest.mark.parametrize(
    ("outputs", "field"),
    [
        (["a", "/etc/passwd"], "outputs[1]"),
        (["../x"], "outputs[0]"),
        (["x"] * (MAX_PATTERNS + 1), "outputs"),
        ([""], "outputs[0]"),
    ],
)
def test_outputs_that_cannot_be_are_refused_by_their_name(outputs: list[str], field: str) -> None:
    with pytest.raises(InvalidSpecError) as refused:
        validate_outputs(outputs)
    assert refused.value.field == field
    assert refused.value.message.startswith(f"{field}: ")
