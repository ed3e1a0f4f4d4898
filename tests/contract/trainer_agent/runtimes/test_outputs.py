"""What runs leave behind in every runtime is found where they left it, whoever they ran as."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from testing.run_handles import finish
from tiercel.core.path_patterns import PathPatterns
from tiercel.trainer_agent.disk.job_folder import PROGRAM, JobFolder
from tiercel.trainer_agent.disk.outputs import OutputLimits, collect
from tiercel.trainer_agent.runtimes.contract import Launch, Program, RunHandle, Runtime

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]  # the first session makes the image

LEAVES = """
import os
os.umask(0o077)
os.makedirs("reports/closed")
for path in ("reports/a.html", "reports/closed/b.html", "c.html"):
    with open(path, "w") as file:
        file.write(path)
os.symlink("/etc/passwd", "reports/link.html")
os.symlink(os.environ["TIERCEL_RUN_DIR"] + "/token", "reports/token.html")
os.mkfifo("reports/pipe.html")
os.chmod("reports/closed", 0o700)
"""


def left_behind(job_folder: Path, working_folder: str, target: Path) -> tuple[dict[str, str], dict[str, str]]:
    target.mkdir()
    found = collect(job_folder, working_folder, PathPatterns(["reports", "*.html"]), target, OutputLimits())
    return {file.path: file.copy.read_text() for file in found.files}, found.left_out


KEPT = {path: path for path in ("reports/a.html", "reports/closed/b.html", "c.html")}
LEFT_OUT = {
    "reports/link.html": "it is a link",
    "reports/pipe.html": "it is not a regular file",
    "reports/token.html": "it is a link",
}


async def test_files_are_found_in_the_working_directory(
    start: Callable[..., Awaitable[RunHandle]], tmp_path: Path
) -> None:
    assert await finish(await start(LEAVES)) == (0, "")
    launch = Launch("job-1", tmp_path / "jobs" / "job", Program(script="train.py"))
    assert left_behind(launch.job_folder, launch.working_folder, tmp_path / "taken") == (KEPT, LEFT_OUT)


async def test_files_of_a_project_are_found_in_its_folder(runtime: Runtime, tmp_path: Path) -> None:
    job = JobFolder(tmp_path / "jobs" / "job")
    job.prepare(token="t", script=None, owner=runtime.owner)
    job.put_project([], lambda entry: tmp_path / entry.content, runtime.owner)
    program = Program(command_line=("python", "-c", LEAVES))
    launch = Launch("job-1", job.path, program, working_folder=PROGRAM, memory_bytes=1024**3)
    assert await finish(await runtime.start(launch)) == (0, "")
    assert left_behind(job.path, launch.working_folder, tmp_path / "taken") == (KEPT, LEFT_OUT)
