"""What an image is asked, and how an environment gets into its containers: with a real engine."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import platform
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testing.docker import DockerEngine, docker_runtime
from testing.node_environments import NodeEnvironments
from testing.run_handles import finish
from testing.until import until
from testing.wheels import write_wheel
from tiercel.trainer_agent.disk.job_folder import JobFolder, ScriptFile
from tiercel.trainer_agent.environments.image_layers import ImageLayers
from tiercel.trainer_agent.errors import RunFailedError
from tiercel.trainer_agent.runtimes.containers import image_python
from tiercel.trainer_agent.runtimes.containers.image_python import ImagePython
from tiercel.trainer_agent.runtimes.containers.runtime import DockerRuntime
from tiercel.trainer_agent.runtimes.contract import CONTAINER_ENVIRONMENT, Launch, Program
from tiercel.trainer_agent.supervision import Supervisor

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]  # the first session makes the image

INSTANCE = f"asking-{os.getpid()}"


@pytest.fixture
async def runtime(engine: DockerEngine) -> AsyncIterator[DockerRuntime]:
    async with docker_runtime(engine, "asking") as docker:
        yield docker


@pytest.fixture
def python(runtime: DockerRuntime) -> ImagePython:
    return runtime.image_python


def containers(engine: DockerEngine, *options: str) -> list[str]:
    """Those of this test."""
    return engine.command("ps", "--quiet", *options, "--filter", f"label=tiercel.instance={INSTANCE}").split()


async def test_a_container_has_what_its_job_asks_for_over_what_its_image_has(
    runtime: DockerRuntime, engine: DockerEngine, tmp_path: Path
) -> None:
    module = "import sys\nVERSION = '1.0'\ndef main():\n    print('by name', sys.prefix, flush=True)\n"
    needs, commands = ["beta", "numpy"], {"say-alpha": "alpha:main"}
    (tmp_path / "node").mkdir()
    script = """
import alpha, beta, json, os, subprocess, sys, torch, tiercel.trainer
print(json.dumps([alpha.VERSION, os.path.exists(alpha.__cached__), torch.__file__, sys.prefix, os.environ["A_KEY"]]))
subprocess.run(["say-alpha"]); sys.stdout.flush()
subprocess.run(["python", "-c", "import alpha, sys; print(sys.executable)"])
for change in (lambda: open(sys.prefix + "/x", "w"), lambda: os.remove(alpha.__file__)):
    try: change()
    except OSError as error: print(error.strerror)
"""
    layers = ImageLayers(CONTAINER_ENVIRONMENT)
    async with Supervisor() as tasks:
        node = NodeEnvironments(tmp_path / "node", tasks)
        write_wheel(node.wheels, "beta")
        write_wheel(node.wheels, "alpha", requires=needs, scripts=commands, files={"alpha.py": module})
        name = "tiercel-test-replaced:1"
        engine.command("tag", engine.image, name)
        try:
            image_id = await runtime.image_python.identify(name)
            layer = await layers.of(image_id, runtime.image_python.ask, node.said.append)
            interpreter = await node.ready("alpha", image=layer)
        finally:
            engine.command("rmi", name)  # as if another one had the name by now
        folder = JobFolder(tmp_path / "job")
        folder.prepare(token="t", script=ScriptFile("train.py", script.encode()), owner=runtime.owner)
        launch = Launch(
            "job-1",
            folder.path,
            Program(script="train.py"),
            image=image_id,
            memory_bytes=1 << 30,
            python=interpreter,
            secrets={"A_KEY": "hunter2"},
        )
        run = await runtime.start(launch)
        assert run.image_id == image_id
        code, output = await finish(run)
        tasks.cancel_all()
    assert code == 0, output
    told, by_name, executable, *refused = output.splitlines()
    torch = "/opt/tiercel/lib/python3.11/site-packages/torch/__init__.py"
    assert json.loads(told) == ["1.0", True, torch, CONTAINER_ENVIRONMENT, "hunter2"]
    assert by_name == f"by name {CONTAINER_ENVIRONMENT}"
    assert executable == f"{CONTAINER_ENVIRONMENT}/bin/python"
    assert set(refused) == {"Read-only file system"}


async def test_who_is_asked_can_do_nothing_else(python: ImagePython, engine: DockerEngine) -> None:
    program = """
import json, os, socket
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
try: open("/x", "w"); written = "done"
except OSError as error: written = error.strerror
mounted = [line.split()[1] for line in open("/proc/mounts") if line.startswith("/dev/")]
print(json.dumps([os.getuid(), int(status["CapBnd"], 16), status["NoNewPrivs"], written,
                  [name for _, name in socket.if_nameindex()], os.path.exists("/tiercel"), mounted]))
"""
    uid, capabilities, no_new, written, networks, has_job, mounted = json.loads(
        await python.ask(await python.identify(""), program)
    )
    assert (capabilities, no_new, networks, has_job) == (0, "1", ["lo"], False)
    assert uid != 0
    assert written in {"Read-only file system", "Permission denied"}
    assert set(mounted) <= {"/etc/resolv.conf", "/etc/hostname", "/etc/hosts"}
    assert containers(engine, "--all") == []


async def test_who_answers_badly_is_one_clear_error_and_leaves_nothing(
    python: ImagePython, engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    image_id = await python.identify("")
    with pytest.raises(RunFailedError, match=r"says more than 2097152 bytes; use an image with Python, or leave out"):
        await python.ask(image_id, "while True: print('x' * 65536)")
    with pytest.raises(RunFailedError, match=r"ended with code 3 when asked what it has: no such thing\.$"):
        await python.ask(image_id, "import sys; print('no such thing', file=sys.stderr); sys.exit(3)")
    with pytest.raises(RunFailedError, match=r"ended with code -?\d+ when asked"):
        await python.ask(image_id, "x = bytearray(1 << 30)")
    monkeypatch.setattr(image_python, "_SECONDS", 1.0)
    with pytest.raises(RunFailedError, match=r"does not say within 1 s what it has; use an image with Python"):
        await python.ask(image_id, "import signal, time; signal.signal(signal.SIGTERM, lambda *_: 0); time.sleep(600)")
    assert containers(engine, "--all") == []


async def test_who_asks_may_give_up(python: ImagePython, engine: DockerEngine) -> None:
    asking = asyncio.ensure_future(python.ask(await python.identify(""), "import time; time.sleep(600)"))
    await until(lambda: containers(engine), seconds=60)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert containers(engine, "--all") == []


async def test_an_image_that_cannot_be_asked_is_named(
    python: ImagePython, engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RunFailedError, match=r"image nobody/has-it:1 is not on this node: pull or build it"):
        await python.identify("nobody/has-it:1")
    archive = tmp_path / "empty.tar"
    with tarfile.open(archive, "w") as written:
        written.addfile(tarfile.TarInfo("nothing"), io.BytesIO())
    image_id = engine.command("import", str(archive)).strip()
    try:
        with pytest.raises(RunFailedError, match=r"does not run the `python` of its image .* engine says: .*python"):
            await python.ask(await python.identify(image_id), "print()")
    finally:
        engine.command("rmi", image_id)
    assert containers(engine, "--all") == []
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(RunFailedError, match=rf"image {engine.image} is for \w+, and this node is riscv64: use one"):
        await python.identify("")


async def test_an_engine_that_goes_away_meanwhile_is_one_clear_error(engine: DockerEngine, tmp_path: Path) -> None:
    """Through a door of its own, since other tests use the engine."""
    writers: list[asyncio.StreamWriter] = []

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other_reader, other_writer = await asyncio.open_unix_connection(engine.host.removeprefix("unix://"))
        writers.extend((writer, other_writer))

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                while data := await source.read(1 << 16):
                    target.write(data)
                    await target.drain()
            target.close()

        await asyncio.gather(copy(reader, other_writer), copy(other_reader, writer))

    door = await asyncio.start_unix_server(pass_on, tmp_path / "door")
    runtime = await DockerRuntime.connect(
        f"unix://{tmp_path}/door", node_id="asking", instance=INSTANCE, image=engine.image
    )
    asking = asyncio.ensure_future(runtime.image_python.ask(engine.image, "import time; time.sleep(600)"))
    await until(lambda: containers(engine), seconds=60)
    door.close()
    for writer in writers:
        writer.close()
    with pytest.raises(RunFailedError, match=r"The Docker engine does not run the `python` of its image"):
        await asking
    await runtime.close()
    (left,) = containers(engine)
    async with docker_runtime(engine, "asking"):  # what it leaves is removed by the next life of the agent
        pass
    assert left not in containers(engine, "--all")
