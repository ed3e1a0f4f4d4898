"""What a node's operator offers as data, in its file."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tiercel.core.data_sets import MAX_OF_A_NODE, variable_of
from tiercel.core.declared_data import FILE, DataDeclarations
from tiercel.core.errors import InvalidSpecError, UnavailableError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data set of two files."""
    folder = tmp_path / "images"
    (folder / "deep").mkdir(parents=True)
    (folder / "a").write_bytes(b"x" * 10_000)
    (folder / "deep" / "b").write_bytes(b"x" * 10_000)
    return folder


@pytest.fixture
def declarations(tmp_path: Path) -> DataDeclarations:
    """Those of an agent that nobody has started yet."""
    return DataDeclarations(tmp_path / "state" / "agent")


def test_what_is_added_is_there_until_it_is_removed(declarations: DataDeclarations, folder: Path) -> None:
    assert declarations.read() == {}
    added = declarations.add("imagenet", folder)
    assert (added.path, added.is_there) == (folder, True)
    assert 20_000 <= (added.size_bytes or 0) < 100_000
    assert DataDeclarations(folder.parent / "state" / "agent").read() == {"imagenet": added}
    declarations.add("one-file", folder / "a")
    assert list(declarations.read()) == ["imagenet", "one-file"]
    declarations.remove("imagenet")
    assert list(declarations.read()) == ["one-file"]
    with pytest.raises(InvalidSpecError, match="no data set 'imagenet'; there are one-file"):
        declarations.remove("imagenet")


def test_a_link_is_followed_when_it_is_declared_and_never_later(declarations: DataDeclarations, folder: Path) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)
    assert declarations.add("d", link).path == folder
    link.unlink()
    assert declarations.read()["d"].is_there
    secret = folder.parent / "secret"
    folder.rename(secret)
    folder.symlink_to(secret)
    assert not declarations.read()["d"].is_there, "what was a folder leads elsewhere now"


@pytest.mark.parametrize("name", ["", "A", "a_b", "a/b", "../a", "-a", "a" * 64, "a\n"])
def test_a_bad_name_is_refused(declarations: DataDeclarations, folder: Path, name: str) -> None:
    with pytest.raises(InvalidSpecError, match=r"^name: "):
        declarations.add(name, folder)
    assert declarations.read() == {}


def test_a_path_that_cannot_be_is_refused(declarations: DataDeclarations, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpecError, match="No such file"):
        declarations.add("d", tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidSpecError, match="neither a file nor a folder"):
        declarations.add("d", tmp_path / "pipe")
    declarations.add("d", folder)
    for own in (tmp_path, tmp_path / "state", tmp_path / "state" / "agent", tmp_path / "state" / "agent" / FILE):
        with pytest.raises(InvalidSpecError, match="the agent's own files"):
            declarations.add("own", own)


def test_there_are_so_many_at_most(declarations: DataDeclarations, folder: Path) -> None:
    for number in range(MAX_OF_A_NODE):
        declarations.add(f"d{number}", folder / "a")
    with pytest.raises(InvalidSpecError, match="more are not taken"):
        declarations.add("another", folder)
    declarations.add("d0", folder)
    assert declarations.read()["d0"].path == folder, "one that is there may be changed"


def test_those_who_add_at_the_same_time_lose_nothing(declarations: DataDeclarations, folder: Path) -> None:
    names = [f"d{number}" for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: declarations.add(name, folder), names))
    assert set(declarations.read()) == set(names)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"data": 5}',
        '{"data": {"d": {"path": "relative"}}}',
        '{"data": {"../d": {"path": "/x"}}}',
        '{"data": {"d": {"path": "/x", "size_bytes": -1}}}',
        "{" + "x" * (1 << 20),
    ],
)
def test_a_file_that_is_something_else_is_named(declarations: DataDeclarations, tmp_path: Path, text: str) -> None:
    (tmp_path / "state" / "agent").mkdir(parents=True)
    (tmp_path / "state" / "agent" / FILE).write_text(text)
    with pytest.raises(UnavailableError, match=FILE):
        declarations.read()


def test_a_crash_in_the_middle_of_writing_leaves_the_old_file(declarations: DataDeclarations, folder: Path) -> None:
    declarations.add("d", folder)
    state = folder.parent / "state" / "agent"
    (state / f".{FILE}.tmp").write_text('{"data": {"d')
    assert list(declarations.read()) == ["d"]
    declarations.add("e", folder)
    assert list(json.loads((state / FILE).read_text())["data"]) == ["d", "e"]


def test_the_variable_of_a_name() -> None:
    assert variable_of("imagenet-1k") == "TIERCEL_DATA_IMAGENET_1K"
