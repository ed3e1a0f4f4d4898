"""Trees of objects: one form for the same folder, and nothing that leads out of it or has no end."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiercel.core.commands import check_command, python_program
from tiercel.core.errors import InvalidSpecError
from tiercel.core.jobs import Direction, JobSpec, Tier
from tiercel.core.projects import (
    MAX_ENTRIES,
    Entry,
    Kind,
    Project,
    decode_folder,
    encode_folder,
    sha256_of,
    stays_inside,
    walk,
)
from tiercel.core.storage import from_json, to_json
from tiercel.core.wire import from_proto, to_proto
from tiercel.v1 import common_pb2

A, B = "ab" * 32, "cd" * 32
NAMES = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=12)


def test_the_same_entries_in_any_order_are_the_same_folder() -> None:
    entries = [Entry("b", Kind.FILE, A, 3), Entry("a", Kind.PROGRAM, B, 1), Entry("é", Kind.LINK, "a")]
    listing = encode_folder(entries)
    assert encode_folder(reversed(entries)) == listing
    assert decode_folder(listing) == tuple(sorted(entries, key=lambda entry: entry.name.encode()))


@given(st.dictionaries(NAMES, st.sampled_from(Kind)))
def test_what_is_listed_is_read_as_it_was_or_refused(found: dict[str, Kind]) -> None:
    entries = [Entry(name, kind, "x" if kind is Kind.LINK else A) for name, kind in found.items()]
    try:
        listing = encode_folder(entries)
    except InvalidSpecError:
        return
    assert set(decode_folder(listing)) == set(entries)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\nb", "a\0", "x" * 256, "e\u0301", os.fsdecode(b"\xff")])
def test_names_that_some_system_reads_otherwise_are_refused(name: str) -> None:
    with pytest.raises(InvalidSpecError, match="rename it"):
        encode_folder([Entry(name, Kind.FILE, A)])


def test_names_that_differ_in_case_only_are_refused() -> None:
    with pytest.raises(InvalidSpecError, match="'Readme' and 'readme' differ in case only"):
        encode_folder([Entry("readme", Kind.FILE, A), Entry("Readme", Kind.FILE, A)])


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{}", b"[1]", b"null", b"\xff", b"[" * 100_000,
        b'[["a","file","' + A.encode() + b'",1] ]',  # not the one form
        b'[["a","device","' + A.encode() + b'",1]]',
        b'[["a","file","no hash",1]]',
        b'[["a","file","' + A.encode() + b'",-1]]',
        b'[["b","file","' + A.encode() + b'",1],["a","file","' + A.encode() + b'",1]]',
        b'[["a","file","' + A.encode() + b'",1],["a","file","' + A.encode() + b'",1]]',
    ],
)  # fmt: skip
def test_bytes_that_are_no_listing_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidSpecError, match="project: "):
        decode_folder(data)


@pytest.mark.parametrize(
    ("path", "target", "inside"),
    [
        ("link", "file", True),
        ("link", "folder/file", True),
        ("a/link", "../file", True),
        ("a/b/link", "../../c/d", True),
        ("link", "../file", False),
        ("a/link", "../../file", False),
        ("link", "/etc/passwd", False),
        ("link", "", False),
        ("a/link", "b/../../../file", False),
        ("a/b/link", "other-link/../../../x", False),  # a step up from where another link leads to
    ],
)
def test_links_stay_inside_whatever_other_links_there_are(path: str, target: str, inside: bool) -> None:
    assert stays_inside(path, target) == inside


def tree(**folders: list[Entry]) -> tuple[str, dict[str, bytes]]:
    """Objects of folders; the last one is the root."""
    objects = [encode_folder(entries) for entries in folders.values()]
    return sha256_of(objects[-1]), {sha256_of(data): data for data in objects}


def test_a_project_is_walked_folders_first() -> None:
    inner = encode_folder([Entry("train.py", Kind.FILE, A, 5)])
    root, objects = tree(
        inner=[Entry("train.py", Kind.FILE, A, 5)],
        root=[Entry("src", Kind.FOLDER, sha256_of(inner), len(inner)), Entry("run", Kind.LINK, "src/train.py")],
    )
    paths = [path for path, _ in walk(root, objects.__getitem__, limit_bytes=5)]
    assert sorted(paths) == ["run", "src", "src/train.py"]
    assert paths.index("src") < paths.index("src/train.py")
    with pytest.raises(InvalidSpecError, match="more than the 4 B that may be sent;"):
        list(walk(root, objects.__getitem__, limit_bytes=4))


def test_a_folder_that_holds_itself_over_and_over_ends() -> None:
    """Each level names the next one twice: 40 listings are a tree of 2^40 folders."""
    listing = encode_folder([])
    objects = {sha256_of(listing): listing}
    for _ in range(40):
        entries = [Entry(name, Kind.FOLDER, sha256_of(listing), len(listing)) for name in ("a", "b")]
        listing = encode_folder(entries)
        objects[sha256_of(listing)] = listing
    with pytest.raises(InvalidSpecError, match=f"more than {MAX_ENTRIES} files and folders"):
        list(walk(sha256_of(listing), objects.__getitem__, limit_bytes=1))


def test_a_link_that_leads_out_is_found_by_whoever_is_sent_it() -> None:
    data = json.dumps([["out", "link", "../x", 0]], separators=(",", ":")).encode()
    with pytest.raises(InvalidSpecError, match=r"the link 'out' leads out of it, to '\.\./x'"):
        list(walk(sha256_of(data), {sha256_of(data): data}.__getitem__, limit_bytes=1))


@pytest.mark.parametrize(
    ("command", "script", "module", "arguments"),
    [
        ("python train.py --lr 0.1", "train.py", "", ("--lr", "0.1")),
        ("python3 ./src/train.py", "src/train.py", "", ()),
        ("python -m package.train x", "", "package.train", ("x",)),
    ],
)
def test_what_python_starts_is_told(command: str, script: str, module: str, arguments: tuple[str, ...]) -> None:
    program = python_program(command.split())
    assert program is not None
    assert (program.script, program.module, program.arguments) == (script, module, arguments)


@pytest.mark.parametrize("command", ["python", "python -u train.py", "python -m", "python /opt/x.py", "bash run.sh"])
def test_anything_else_is_another_program(command: str) -> None:
    assert python_program(command.split()) is None


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("python trian.py", "no file 'trian.py' in the project; did you mean 'train.py'"),
        ("python nothing-like-it", "no file 'nothing-like-it' in the project; give a path relative"),
        ("python src", "'src' in the project is a folder"),
        ("./train.py", "'train.py' in the project may not be executed; make it so by 'chmod"),
    ],
)
def test_a_command_whose_file_is_missing_is_refused(command: str, message: str) -> None:
    project = {
        "train.py": Entry("train.py", Kind.FILE, A, 1),
        "run.sh": Entry("run.sh", Kind.PROGRAM, A, 1),
        "src": Entry("src", Kind.FOLDER, B, 1),
    }
    with pytest.raises(InvalidSpecError) as caught:
        check_command(command.split(), project)
    assert message in caught.value.message
    assert caught.value.field == "command"
    for good in ("python train.py", "./run.sh x", "bash run.sh", "torchrun train.py", "python -m src.train"):
        check_command(good.split(), project)


def test_the_folder_that_a_project_was_packed_from_is_told_to_nobody(tmp_path: Path) -> None:
    project = Project(A, "12" * 20, dirty=True, folder=str(tmp_path))
    spec = JobSpec("j", "e", "m", Direction.MAX, (Tier(0.5),), project=project, command=("python", "train.py"))
    wire = to_proto(spec, common_pb2.JobSpec)
    assert str(tmp_path) not in to_json(spec) + str(wire)
    assert from_json(JobSpec, to_json(spec)) == from_proto(JobSpec, wire) == spec
