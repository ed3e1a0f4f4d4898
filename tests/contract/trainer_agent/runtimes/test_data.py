"""Data sets of a run, in both runtimes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from tiercel.trainer_agent.data.mounts import DataMount
from tiercel.trainer_agent.disk.scratch import ScratchFolders
from tiercel.trainer_agent.runtimes.contract import RunHandle, Runtime

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]  # the first session makes the image

Start = Callable[..., Awaitable[RunHandle]]

READ = """
import json, os
folder, table = os.environ["TIERCEL_DATA_LETTERS_A"], os.environ["TIERCEL_DATA_TABLE"]
print(json.dumps({"paths": [folder, table], "files": os.listdir(folder), "table": open(table).read()}))
"""
WRITE = """
import json, os
folder, table = os.environ["TIERCEL_DATA_LETTERS_A"], os.environ["TIERCEL_DATA_TABLE"]
said = []
for change in (
    lambda: open(folder + "/new", "w"), lambda: open(folder + "/a", "a"), lambda: os.remove(folder + "/a"),
    lambda: open(table, "a"), lambda: os.remove(table), lambda: os.chmod(table, 0o777),
):
    try:
        change()
        said.append("done")
    except OSError as error:
        said.append(error.strerror)
print(json.dumps(said))
"""


async def says(run: RunHandle) -> Any:
    """The JSON that a run prints."""
    async with asyncio.timeout(60), aclosing(run.output()) as chunks:  # type: ignore[type-var]  # it is a generator
        output = b"".join([chunk.data async for chunk in chunks]).decode()
        how = await run.wait()
    await run.close()
    assert how.code == 0, output
    return json.loads(output)


@pytest.fixture
def data(tmp_path: Path) -> tuple[DataMount, ...]:
    """A folder and a file that anybody could change."""
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters").chmod(0o777)
    (tmp_path / "letters" / "a").write_text("a")
    (tmp_path / "table.csv").write_text("1,2")
    for file in (tmp_path / "letters" / "a", tmp_path / "table.csv"):
        file.chmod(0o666)
    return (
        DataMount("letters-a", tmp_path / "letters", is_folder=True),
        DataMount("table", tmp_path / "table.csv", is_folder=False),
    )


async def test_a_run_finds_them_by_their_names(
    runtime: Runtime, start: Start, data: tuple[DataMount, ...], tmp_path: Path
) -> None:
    found = await says(await start(READ, data=data))
    assert (found["files"], found["table"]) == (["a"], "1,2")
    places = {
        "process": [str(tmp_path / "letters"), str(tmp_path / "table.csv")],
        "docker": ["/tiercel-data/letters-a", "/tiercel-data/table/table.csv"],
    }
    assert found["paths"] == places[runtime.name]


@pytest.mark.parametrize("runtime", ["docker"], indirect=True)
async def test_a_container_cannot_change_them(start: Start, data: tuple[DataMount, ...], tmp_path: Path) -> None:
    assert set(await says(await start(WRITE, data=data))) <= {"Read-only file system", "Permission denied"}
    assert (tmp_path / "table.csv").read_text() == "1,2"
    assert [file.name for file in (tmp_path / "letters").iterdir()] == ["a"]


async def test_a_scratch_folder_is_there_to_be_written_to(runtime: Runtime, start: Start, tmp_path: Path) -> None:
    folder = ScratchFolders(tmp_path / "scratch").make("job-1", runtime.owner)
    script = (
        "import json, os\n"
        "open(os.environ['TIERCEL_SCRATCH'] + '/x', 'w').write('x')\n"
        "print(json.dumps(os.environ['TIERCEL_SCRATCH']))\n"
    )
    place = await says(await start(script, scratch=folder))
    assert place == {"process": str(folder), "docker": "/tiercel-scratch"}[runtime.name]
    assert (folder / "x").read_text() == "x"
