"""Documents that name tests, files or modules name ones that there are; the site has all of them, and asks nobody."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def test_every_fault_that_is_told_of_has_its_tests() -> None:
    text = (REPOSITORY / "docs" / "faults.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(named) > 30
    missing = [f"{path}::{name}" for path, name in named if f"def {name}(" not in (REPOSITORY / path).read_text()]
    assert not missing
    numbers = [int(number) for number in re.findall(r"^\| (\d+)\. ", text, re.MULTILINE)]
    assert numbers == [*range(1, len(numbers) + 1)]
    assert len(numbers) >= 16


DOCUMENTS = [
    path
    for pattern in ("*.md", "docs/**/*.md", "broker/**/*.md", "serving/**/*.md", "trainer_agent/**/*.md")
    for path in sorted(REPOSITORY.glob(pattern))
]
ROOMS = "broker|core|serving|trainer_agent|testing|tests|benchmarks|protos|tools"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_what_a_document_points_at_is_there(document: Path) -> None:
    text = document.read_text()
    named = re.findall(rf"`((?:{ROOMS})/[\w./-]+)(?:::\w+)?`", text)
    linked = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    missing = [name for name in named if not (REPOSITORY / name).exists()]
    assert missing + [link for link in linked if not (document.parent / link).exists()] == []


def test_modules_that_documents_start_are_there() -> None:
    places = [*DOCUMENTS, REPOSITORY / "Makefile", REPOSITORY / "Dockerfile", *(REPOSITORY / "tools").glob("*.*")]
    started = {
        found
        for place in places
        for found in re.findall(r"python3? -m ((?:tiercel|benchmarks|testing)[\w.]*)", place.read_text())
    }
    assert len(started) > 10
    paths = [REPOSITORY.joinpath(*name.removeprefix("tiercel.").split(".")) for name in started]
    assert [path for path in paths if not (path.with_suffix(".py").exists() or (path / "__main__.py").exists())] == []


def pages_of(navigation: object) -> Iterator[str]:
    """The paths of all pages that a part of the site's navigation has."""
    if isinstance(navigation, str):
        yield navigation
    elif isinstance(navigation, list | dict):
        for part in navigation.values() if isinstance(navigation, dict) else navigation:
            yield from pages_of(part)


def test_every_document_is_on_the_site_and_nothing_there_is_fetched_from_elsewhere() -> None:
    subprocess.run([sys.executable, "-m", "tools.site"], cwd=REPOSITORY, check=True, capture_output=True, timeout=110)
    site = REPOSITORY / "build" / "site"
    shown = set(pages_of(tomllib.loads((REPOSITORY / "zensical.toml").read_text())["project"]["nav"]))
    documents = {str(path.relative_to(REPOSITORY / "docs")) for path in (REPOSITORY / "docs").rglob("*.md")}
    assert {name for name in documents if not re.match(r"decisions/\d", name)} <= shown
    assert [name for name in shown | documents if not (site / name).with_suffix(".html").exists()] == []
    fetched = re.compile(
        r"""<(?:script|img|iframe|source)[^>]*\bsrc=["']?(?:https?:)?//|<link[^>]*stylesheet[^>]*href=["']?https?://"""
    )
    assert [str(page) for page in site.rglob("*.html") if fetched.search(page.read_text())] == []
