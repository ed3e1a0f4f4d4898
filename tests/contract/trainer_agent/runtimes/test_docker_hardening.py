"""What a container may not do, tried from inside of one, and what the runtime says when the engine cannot help."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from testing.docker import DockerEngine, docker_runtime
from tiercel.core.errors import SetupError
from tiercel.trainer_agent.disk.job_folder import JobFolder, ScriptFile
from tiercel.trainer_agent.errors import RunFailedError
from tiercel.trainer_agent.runtimes.containers.config import PIDS_LIMIT
from tiercel.trainer_agent.runtimes.containers.run import DockerRun
from tiercel.trainer_agent.runtimes.containers.runtime import DockerRuntime
from tiercel.trainer_agent.runtimes.contract import Launch, Program

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]  # the first session makes the image

INSTANCE = f"hardening-{os.getpid()}"
LAUNCH = Launch("job-1", Path(), Program(script="train.py"), memory_bytes=512 * 1024**2)

Start = Callable[..., Awaitable[DockerRun]]


@pytest.fixture
async def runtime(engine: DockerEngine) -> AsyncIterator[DockerRuntime]:
    async with docker_runtime(engine, "hardening") as docker:
        yield docker


@pytest.fixture
def start(runtime: DockerRuntime, tmp_path: Path) -> Start:
    async def _start(script: str, **changes: str) -> DockerRun:
        folder = JobFolder(tmp_path / "job")
        folder.prepare(token="t", script=ScriptFile("train.py", script.encode()), owner=runtime.owner)
        return await runtime.start(replace(LAUNCH, job_folder=folder.path, **changes))  # type: ignore[arg-type]  # text

    return _start


async def says(run: DockerRun) -> str:
    """The output of a run that has to succeed."""
    async with asyncio.timeout(60), aclosing(run.output()) as chunks:  # type: ignore[type-var]  # it is a generator
        output = b"".join([chunk.data async for chunk in chunks]).decode()
        how = await run.wait()
    await run.close()
    assert how.code == 0, output
    return output


async def test_it_has_no_network(start: Start) -> None:
    script = (
        "import socket\n"
        "print([name for _, name in socket.if_nameindex()])\n"
        "try:\n"
        "    socket.create_connection(('192.0.2.1', 80), timeout=5)\n"
        "except OSError as error:\n"
        "    print(error.strerror)\n"
    )
    assert (await says(await start(script))).splitlines() == ["['lo']", "Network is unreachable"]


async def test_its_root_is_read_only_and_its_scratch_space_bounded(start: Start) -> None:
    script = (
        "import errno, os\n"
        "for path in ('/', '/usr', '/opt/tiercel', '/etc', '/dev/shm/..'):\n"
        "    try:\n"
        "        open(path + '/x', 'w')\n"
        "        print('could write to', path)\n"
        "    except OSError as error:\n"
        "        assert error.errno in (errno.EROFS, errno.EACCES), error\n"
        "try:\n"
        "    with open('/tmp/x', 'wb') as file:\n"
        "        for _ in range(1000): file.write(bytes(1 << 20))\n"
        "except OSError as error:\n"
        "    print(error.strerror)\n"
    )
    assert (await says(await start(script))).strip() == "No space left on device"


async def test_it_has_no_rights(start: Start) -> None:
    script = (
        "import os, json\n"
        "status = dict(line.split(':\\t', 1) for line in open('/proc/self/status').read().splitlines())\n"
        "keep = ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp')\n"
        "print(json.dumps({'uid': os.getuid(), 'gid': os.getgid(), 'groups': os.getgroups(),\n"
        "                  **{key: int(status[key], 16) for key in keep}}))\n"
    )
    status = json.loads(await says(await start(script)))
    assert status["uid"] != 0
    assert status["gid"] != 0
    assert 0 not in status["groups"]
    assert status["NoNewPrivs"] == 1
    assert status["Seccomp"] == 2
    assert {status[key] for key in status if key.startswith("Cap")} == {0}


async def test_it_cannot_start_processes_without_end(start: Start) -> None:
    script = (
        "import os, time\n"
        "children = 0\n"
        "try:\n"
        "    while children < 5000:\n"
        "        if os.fork() == 0: time.sleep(600)\n"
        "        children += 1\n"
        "except BlockingIOError:\n"
        "    print(children, flush=True)\n"
        "os._exit(0)\n"
    )
    assert 0 < int(await says(await start(script))) < PIDS_LIMIT


async def test_it_sees_its_own_folder_and_nothing_else_of_the_host(start: Start, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "secret").write_text("of another job")
    script = (
        "import os\n"
        "print(sorted(os.listdir('/tiercel')))\n"
        f"print(os.path.exists({str(tmp_path)!r}))\n"
        "try: os.rename('/tiercel/program', '/tiercel/elsewhere')\n"
        "except OSError as error: print(error.strerror)\n"
    )
    listing, exists, *renamed = (await says(await start(script))).splitlines()
    assert listing == "['checkpoints', 'exports', 'imports.json', 'program', 'token', 'work']"
    assert exists == "False"
    if os.geteuid() == 0:  # else the container's user owns the folder, and the agent is careful with it
        assert renamed == ["Permission denied"]


async def test_an_image_that_is_missing_is_named(start: Start, engine: DockerEngine, tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match=r"image nobody/has-it:1 is not on this node: pull or build it"):
        await start("", image="nobody/has-it:1")
    other = await DockerRuntime.connect(engine.host, node_id="n", instance=INSTANCE, image="default-is-missing:1")
    with pytest.raises(
        RunFailedError, match=r"default-is-missing:1 is not on this node: build it there with `make image`"
    ):
        await other.start(replace(LAUNCH, job_folder=tmp_path))
    await other.close()


async def test_an_engine_that_is_absent_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"No Docker engine answers at unix:///.*--docker-host.*--runtimes"):
        await DockerRuntime.connect(f"unix://{tmp_path}/no.sock", node_id="n", instance="i", image="x")
    with pytest.raises(SetupError, match="No Docker engine answers at nonsense"):
        await DockerRuntime.connect("nonsense", node_id="n", instance="i", image="x")


async def test_leftovers_of_this_agent_are_removed_and_those_of_another_are_not(
    start: Start, runtime: DockerRuntime, engine: DockerEngine
) -> None:
    run = await start("import time; time.sleep(600)")
    other = await DockerRuntime.connect(engine.host, node_id="hardening", instance="another", image=engine.image)
    await other.remove_leftovers(())
    await other.close()
    assert engine.command("ps", "--quiet", "--filter", f"label=tiercel.instance={INSTANCE}").strip()
    await runtime.remove_leftovers(())
    assert not engine.command("ps", "--all", "--quiet", "--filter", f"label=tiercel.instance={INSTANCE}").strip()
    how = await run.wait()
    assert how.code == -9
    await run.stop(0)
    await run.close()


async def test_an_images_own_command_gets_secrets_as_well(start: Start) -> None:
    command = ("-c", "import os; print(os.environ['A_KEY'])")  # its entry point is Python
    run = await start("", program=Program(arguments=command), secrets={"A_KEY": "hunter2"})
    assert await says(run) == "hunter2\n"
