"""The pages as files: what others wrote is what its hash says, and what we wrote asks nobody else for anything."""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[4]
STATIC = REPOSITORY / "broker" / "dashboard" / "static"
OURS = sorted(
    path for path in STATIC.rglob("*.*") if path.suffix in {".js", ".css", ".html"} and "vendor" not in path.parts
)
MOST_LINES, MOST_COLUMNS = 400, 150


@pytest.mark.parametrize(
    "folder", [STATIC / "vendor", REPOSITORY / "tests" / "data" / "axe-core"], ids=lambda path: path.name
)
def test_what_is_vendored_has_its_hash_and_its_licence(folder: Path) -> None:
    entries = tomllib.loads((folder / "vendor.toml").read_text())["file"]
    assert {entry["path"] for entry in entries} == {path.name for path in folder.iterdir()} - {"vendor.toml"}
    for entry in entries:
        assert hashlib.sha256((folder / entry["path"]).read_bytes()).hexdigest() == entry["sha256"], entry["path"]
    with_licence = {entry["package"] for entry in entries if "LICENSE" in entry["path"]}
    assert {entry["package"] for entry in entries} == with_licence


@pytest.mark.parametrize("path", OURS, ids=lambda path: str(path.relative_to(STATIC)))
def test_what_the_pages_name_is_there_and_nowhere_else(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MOST_LINES
    assert max(map(len, text.splitlines())) <= MOST_COLUMNS
    assert not re.search(r"""["'(](https?:)?//""", text.replace('"http://www.w3.org/2000/svg"', "")), (
        "it names another host"
    )
    named = [path.parent / found for found in re.findall(r'from "(\.[^"]+)"', text)]
    named += [STATIC / found for found in re.findall(r'"/assets/([^"]+)"', text)]
    assert [str(each) for each in named if not each.is_file()] == []
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|dangerouslySetInnerHTML", text
    )
