"""The structure of the code, as far as a linter that looks at modules one by one does not see it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PRODUCT = ("broker", "core", "serving", "trainer_agent")
ROOMS = {**dict.fromkeys(PRODUCT, "tiercel."), "benchmarks": "", "testing": ""}
LONGEST_FILE = 400
LONGEST_FUNCTION = 60


def modules_of(room: str, prefix: str) -> dict[str, Path]:
    """The files of a package by the name that they are imported by."""
    found: dict[str, Path] = {}
    for path in sorted((REPOSITORY / room).rglob("*.py")):
        parts = path.relative_to(REPOSITORY).with_suffix("").parts
        found[prefix + ".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def statements_in(node: ast.AST) -> Iterator[ast.stmt]:
    """All statements below a node, wherever; expressions, most of a tree, have none in them and are not looked at."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        below = getattr(node, name, ())
        for each in below if isinstance(below, list) else ():
            if isinstance(each, ast.stmt):
                yield each
            yield from statements_in(each)


@functools.cache
def import_lines(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """What a file imports, wherever in it."""
    tree = ast.parse(path.read_text())
    return tuple(node for node in statements_in(tree) if isinstance(node, ast.Import | ast.ImportFrom))


def imports_of(name: str, path: Path, modules: dict[str, Path]) -> set[str]:
    """The modules among these that a file imports, be it for types only or inside of a function."""
    found: set[str] = set()
    for node in import_lines(path):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif node.module is not None:
            for alias in node.names:
                below = f"{node.module}.{alias.name}"
                found.add(below if below in modules else node.module)
    return (found & modules.keys()) - {name}


@pytest.mark.parametrize("room", ROOMS)
def test_no_files_import_each_other_in_a_circle_types_counted(room: str) -> None:
    modules = modules_of(room, ROOMS[room])
    assert modules
    try:
        TopologicalSorter({name: imports_of(name, path, modules) for name, path in modules.items()}).prepare()
    except CycleError as error:
        pytest.fail(f"they import each other in a circle: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize(
    ("room", "strangers"),
    [
        *((room, {"benchmarks", "testing", "tests"}) for room in PRODUCT),
        ("testing", {"benchmarks", "tests"}),
        ("benchmarks", {"tests"}),
    ],
)
def test_what_is_shared_knows_nobody_who_shares_it(room: str, strangers: set[str]) -> None:
    for path in (REPOSITORY / room).rglob("*.py"):
        lines = import_lines(path)
        names = [node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name for node in lines]
        assert not {name.partition(".")[0] for name in names} & strangers, path


def test_a_circle_is_found_also_if_it_is_of_types_only(tmp_path: Path) -> None:
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    one.write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from two import Two\n")
    two.write_text("def work():\n    try:\n        pass\n    except OSError:\n        import one\n")
    modules = {"one": one, "two": two}
    assert {name: imports_of(name, path, modules) for name, path in modules.items()} == {"one": {"two"}, "two": {"one"}}


def test_files_and_functions_are_short_in_every_room() -> None:
    long: list[str] = []
    for room in (*ROOMS, "tests", "tools", "tiercel", "examples"):
        for path in sorted((REPOSITORY / room).rglob("*.py")):
            lines = path.read_text().splitlines()
            if len(lines) > LONGEST_FILE:
                long.append(f"{path}: {len(lines)} lines")
            if len(lines) <= LONGEST_FUNCTION:
                continue
            for node in statements_in(ast.parse("\n".join(lines))):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    length = (node.end_lineno or node.lineno) - node.lineno + 1
                    long += [f"{path}: {node.name} has {length} lines"] if length > LONGEST_FUNCTION else []
    assert long == []


@pytest.mark.parametrize("room", PRODUCT)
def test_a_process_of_ours_takes_nothing_from_the_folder_that_it_is_started_in(room: str) -> None:
    """``python -m`` looks there first, and anybody may have made a folder ``tiercel`` in it; ``-P`` has it not."""
    for path in sorted((REPOSITORY / room).rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "sys.executable" in text else ():
            parts = (
                node.elts if isinstance(node, ast.List | ast.Tuple) else node.args if isinstance(node, ast.Call) else []
            )
            words = [ast.unparse(each) for each in parts[:2]]
            assert words != ["sys.executable", "'-m'"], f"{path}: give -P before -m"
