"""What of a folder is sent: what git would have, what .tiercelignore says, nothing that works nowhere else."""

from __future__ import annotations

import os
import socket
import subprocess
import unicodedata
from pathlib import Path

import pytest

from tiercel.broker.client.projects.git import git_state
from tiercel.broker.client.projects.packing import PackedProject, pack
from tiercel.core.errors import InvalidSpecError
from tiercel.core.projects import MAX_ENTRIES, Kind, Project, walk

LIMIT = 10_000


def packed(folder: Path, limit_bytes: int = LIMIT) -> PackedProject:
    return pack(Project(folder=str(folder)), limit_bytes)


def paths(project: PackedProject) -> dict[str, Kind]:
    found = walk(project.project.sha256, project.folders.__getitem__, limit_bytes=LIMIT)
    return {path: entry.kind for path, entry in found}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)
    return done.stdout.decode()


def test_the_same_folder_is_the_same_project_wherever_it_lies_and_whenever_it_was_made(tmp_path: Path) -> None:
    for name, order in (("one", ("a", "b/c")), ("two", ("b/c", "a"))):
        write(tmp_path / name, {path: path for path in order})
    os.utime(tmp_path / "two" / "a", (1, 1))
    assert packed(tmp_path / "one").project.sha256 == packed(tmp_path / "two").project.sha256
    (tmp_path / "two" / "a").chmod(0o755)
    assert packed(tmp_path / "one").project.sha256 != packed(tmp_path / "two").project.sha256
    assert paths(packed(tmp_path / "two"))["a"] is Kind.PROGRAM


def test_what_is_ignored_is_what_git_ignores(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            ".gitignore": "*.log\n/build/\ndata/*\n!data/keep.txt\nsub/deep/\n# comment\n\\#literal\n*.tmp\n"
            "!important.tmp\n**/cache/**\nfoo/**/bar\ntrailing \nabc/\n",
            "sub/.gitignore": "!*.log\nsecret.txt\n/only-here\n",
            "sub/inner/.gitignore": "*\n!.gitignore\n!kept\n",
            **dict.fromkeys(
                (
                    "train.py", "a.log", "sub/b.log", "sub/secret.txt", "secret.txt", "sub/only-here",
                    "sub/x/only-here", "build/out", "sub/build/out", "data/big.bin", "data/keep.txt", "sub/deep/x",
                    "deep/x", "#literal", "important.tmp", "other.tmp", "x/cache/y/z", "foo/bar", "foo/a/b/bar",
                    "foo/a/bar.py", "trailing", "sub/inner/kept", "sub/inner/lost", "abc/file", "sub/abc/file", "é.log",
                    "é.py",
                ),
                "x",
            ),
        },
    )  # fmt: skip
    git(tmp_path, "init", "-q")
    listed = git(tmp_path, "-c", "core.quotepath=off", "ls-files", "-co", "--exclude-standard", "-z").split("\0")
    ours = packed(tmp_path)
    assert {path for path, kind in paths(ours).items() if kind is not Kind.FOLDER} == set(filter(None, listed))
    assert ours.left_out["a.log"] == "ignored by .gitignore"
    assert ours.left_out["sub/secret.txt"] == "ignored by sub/.gitignore"
    assert ours.left_out[".git/"] == "left out by default"


def test_our_own_ignore_file_has_the_last_word(tmp_path: Path) -> None:
    write(tmp_path, {".gitignore": "data/\n*.bin\n", ".tiercelignore": "!data/\ndata/big.*\nnotes.md\n"})
    write(tmp_path, {"data/small.bin": "x", "data/big.bin": "x", "notes.md": "x", "train.py": "x", "a.bin": "x"})
    write(tmp_path, {"__pycache__/a": "x"})
    write(tmp_path, {"sub/.tiercelignore": "*.md\n", "sub/a.md": "x", "sub/b.py": "x"})
    ours = packed(tmp_path)
    found = {path for path, kind in paths(ours).items() if kind is not Kind.FOLDER and not path.endswith("ignore")}
    assert found == {"data/small.bin", "train.py", "sub/b.py"}
    assert ours.left_out == {
        "__pycache__/": "left out by default",
        "a.bin": "ignored by .gitignore",
        "data/big.bin": "ignored by .tiercelignore",
        "notes.md": "ignored by .tiercelignore",
        "sub/a.md": "ignored by sub/.tiercelignore",
    }


def test_rules_of_the_repository_around_a_project_hold_in_it(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    write(tmp_path, {".gitignore": "*.pt\n/jobs/one/private\n", "jobs/.gitignore": "*.csv\n"})
    write(
        tmp_path / "jobs/one", {"train.py": "x", "model.pt": "x", "private": "x", "table.csv": "x", "sub/private": "x"}
    )
    assert set(paths(packed(tmp_path / "jobs/one"))) == {"train.py", "sub", "sub/private"}


def test_a_virtual_environment_is_left_out_whatever_it_is_called(tmp_path: Path) -> None:
    write(tmp_path, {"my-env/pyvenv.cfg": "home = x", "my-env/bin/python": "x", "train.py": "x"})
    ours = packed(tmp_path)
    assert set(paths(ours)) == {"train.py"}
    assert ours.left_out == {"my-env/": "a virtual environment"}


def test_a_project_over_the_limit_is_refused_before_it_is_read_with_its_largest_files(tmp_path: Path) -> None:
    write(tmp_path, {f"{number}.bin": "x" * 1_000 * number for number in range(1, 8)})
    os.mkfifo(tmp_path / "ignored.pipe")
    write(tmp_path, {".tiercelignore": "*.pipe\n"})
    with pytest.raises(InvalidSpecError) as caught:
        packed(tmp_path, 20_000)
    message = caught.value.message
    assert "its files have more than the 19.5 KiB that may be sent; the largest are 7.bin (6.84 KiB), 6.bin" in message
    assert "2.bin" not in message
    assert caught.value.field == "project"


@pytest.mark.parametrize("target", ["../outside", "/etc/passwd", "sub/../../outside"])
def test_links_out_of_the_folder_are_refused_and_links_in_it_are_kept(tmp_path: Path, target: str) -> None:
    project = tmp_path / "project"
    write(project, {"train.py": "x", "sub/a": "x"})
    (project / "sub" / "inside").symlink_to("../train.py")
    assert paths(packed(project))["sub/inside"] is Kind.LINK
    (project / "out").symlink_to(target)
    with pytest.raises(InvalidSpecError, match="the symbolic link 'out' leads out of the folder"):
        packed(project)


def test_what_cannot_be_sent_is_named(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "agent.sock"))
        with pytest.raises(InvalidSpecError, match=r"'agent.sock' is a socket, pipe or device"):
            packed(tmp_path)
    (tmp_path / "agent.sock").unlink()
    (tmp_path / os.fsdecode(b"bad-\xff")).touch()
    with pytest.raises(InvalidSpecError, match="cannot be the name of a file in a project; rename it"):
        packed(tmp_path)


def test_a_name_written_in_parts_is_sent_as_others_write_it(tmp_path: Path) -> None:
    (tmp_path / unicodedata.normalize("NFD", "é.py")).write_text("x")
    assert set(paths(packed(tmp_path))) == {"é.py"}


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    for number in range(MAX_ENTRIES + 1):
        (tmp_path / str(number)).touch()
    with pytest.raises(InvalidSpecError, match="more than 20000 files and folders"):
        packed(tmp_path)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("nothing", "file"):
        with pytest.raises(InvalidSpecError, match=f"{name} is not a folder"):
            packed(tmp_path / name)


def test_the_commit_and_whether_the_folder_differs_from_it_are_recorded(tmp_path: Path) -> None:
    write(tmp_path, {"job/train.py": "x", "other/file": "x"})
    assert git_state(tmp_path / "job") == ("", False)
    git(tmp_path, "init", "-q")
    assert git_state(tmp_path / "job") == ("", False)  # no commit yet
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    commit = git(tmp_path, "rev-parse", "HEAD").strip()
    assert git_state(tmp_path / "job") == (commit, False)
    write(tmp_path, {"other/file": "changed"})
    assert git_state(tmp_path / "job") == (commit, False)  # another folder's changes are not the project's
    write(tmp_path, {"job/new.py": "x"})
    assert git_state(tmp_path / "job") == (commit, True)
    assert packed(tmp_path / "job").project.dirty


def test_a_strangers_repository_runs_nothing(tmp_path: Path) -> None:
    """A clone may bring a configuration that names programs for git to run."""
    git(tmp_path, "init", "-q")
    (tmp_path / "hook").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (tmp_path / "hook").chmod(0o755)
    git(tmp_path, "config", "core.fsmonitor", str(tmp_path / "hook"))
    git_state(tmp_path)
    assert not (tmp_path / "ran").exists()
