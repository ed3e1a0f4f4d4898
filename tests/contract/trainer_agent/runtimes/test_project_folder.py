"""A project in every runtime: its folder is where a command begins, the run's own, and never another job's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.run_handles import finish
from tiercel.core.projects import Entry, Kind, sha256_of
from tiercel.trainer_agent.disk.job_folder import PROGRAM, JobFolder
from tiercel.trainer_agent.runtimes.contract import Launch, Program, Runtime

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]  # the first session makes the image

FILES = {
    "run.sh": '#!/bin/sh\necho "in $(pwd) with $1"\nexec python src/train.py "$@"\n',
    "src/train.py": "import os, sys\nfrom pathlib import Path\nfrom helper import NAME\n"
    "print(NAME, sys.argv[1:], Path('link').read_text(), Path(sys.argv[0]).name)\n"
    "Path('data.txt').write_text('changed')\nPath('src/new').touch()\n",
    "src/helper.py": "NAME = 'helped'\n",
    "data.txt": "as sent",
}


class Folder:
    """A project whose objects lie in a folder, put into a job's folder for a runtime."""

    def __init__(self, tmp_path: Path, runtime: Runtime) -> None:
        self.runtime = runtime
        self.objects = tmp_path / "objects"
        self.objects.mkdir()
        self.job = JobFolder(tmp_path / "jobs" / "job")
        self.entries: list[tuple[str, Entry]] = [("src", Entry("src", Kind.FOLDER, "ab" * 32))]
        for path, text in FILES.items():
            name = sha256_of(text.encode())
            (self.objects / name).write_text(text)
            kind = Kind.PROGRAM if path == "run.sh" else Kind.FILE
            self.entries.append((path, Entry(path.rpartition("/")[2], kind, name, len(text))))
        self.entries.append(("link", Entry("link", Kind.LINK, "data.txt")))

    async def run(self, run_id: str, program: Program) -> tuple[int, str]:
        """Start a run from a fresh copy; its exit code and its output."""
        self.job.prepare(token="t", script=None, owner=self.runtime.owner)
        self.job.put_project(self.entries, lambda entry: self.objects / entry.content, self.runtime.owner)
        launch = Launch(run_id, self.job.path, program, working_folder=PROGRAM, memory_bytes=1024**3)
        return await finish(await self.runtime.start(launch))


@pytest.fixture
def folder(tmp_path: Path, runtime: Runtime) -> Folder:
    return Folder(tmp_path, runtime)


@pytest.mark.parametrize(
    ("program", "output"),
    [
        (Program(command_line=("./run.sh", "a b")), "helped ['a b'] as sent train.py"),
        (Program(script="src/train.py", arguments=("x",)), "helped ['x'] as sent train.py"),
        (Program(command_line=("python", "-u", "src/train.py")), "helped [] as sent train.py"),
        (Program(command_line=("sh", "-c", "python src/train.py 1 2")), "helped ['1', '2'] as sent train.py"),
    ],
    ids=["executable", "script", "interpreter", "shell"],
)
async def test_a_command_begins_in_a_copy_of_its_own(folder: Folder, program: Program, output: str) -> None:
    for number in (1, 2):  # the second run finds nothing of what the first one changed
        code, said = await folder.run(f"job-{number}", program)
        assert (code, output in said) == (0, True), said
    assert all((folder.objects / sha256_of(text.encode())).read_text() == text for text in FILES.values())
    inodes = {path.stat().st_ino for path in folder.objects.iterdir()}
    assert not inodes & {path.stat().st_ino for path in (folder.job.path / PROGRAM).rglob("*") if path.is_file()}


async def test_a_module_of_the_project_is_found(folder: Folder) -> None:
    code, said = await folder.run("job-1", Program(module="src.helper"))
    assert (code, said) == (0, "")


async def test_a_command_that_is_nowhere_is_said(folder: Folder) -> None:
    code, said = await folder.run("job-1", Program(command_line=("no-such-command",)))
    assert code == 127
    assert "no-such-command" in said


async def test_whatever_a_run_left_in_the_place_of_its_program_is_replaced(folder: Folder, tmp_path: Path) -> None:
    await folder.run("job-1", Program(module="src.helper"))
    program = folder.job.path / PROGRAM
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "data.txt").write_text("of somebody else")
    program.rename(folder.job.path / "moved")
    program.symlink_to(tmp_path / "elsewhere")
    code, _ = await folder.run("job-2", Program(module="src.helper"))
    assert code == 0
    assert not program.is_symlink()
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["data.txt"]
    assert (tmp_path / "elsewhere" / "data.txt").read_text() == "of somebody else"
