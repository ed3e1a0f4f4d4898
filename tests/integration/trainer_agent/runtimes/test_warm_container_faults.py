"""A container that cannot become a run costs it nothing but time; none is left over, and no run is there twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from testing.docker import DockerEngine, docker_runtime
from testing.run_handles import finish, ready
from testing.until import until
from testing.warm_node import ContainerNode, container_node
from testing.warm_python import WarmProcess, lasting_python
from tiercel.trainer_agent.errors import RunFailedError
from tiercel.trainer_agent.runtimes.containers import waiting_container, waiting_containers
from tiercel.trainer_agent.runtimes.contract import Launch, Program
from tiercel.trainer_agent.runtimes.processes.templates import TemplateSettings

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]  # the first session makes the image

INSTANCE = f"warm-faults-{os.getpid()}"
Killed = Callable[[str], Awaitable[dict[str, str]]]
RAN = "print('ran')"
WAITS = """
import os, sys, time
print('on standard error', file=sys.stderr, flush=True)
print('ready', flush=True)
while not os.path.exists('go'): time.sleep(0.01)
print('done')
raise SystemExit(7)
"""
AGENT = """
import asyncio, json, os, signal, sys
from pathlib import Path
from testing.docker import DockerEngine
from testing.warm_node import NodeOf
from tiercel.trainer_agent.runtimes.containers.runtime import DockerRuntime
from tiercel.trainer_agent.runtimes.processes.templates import TemplateSettings
from tiercel.trainer_agent.runtimes.containers.waiting_container import WaitingContainer

async def main(folder, host, image, instance, script, dies):
    runtime = await DockerRuntime.connect(host, node_id="warm-faults", instance=instance, image=image)
    node = NodeOf(Path(folder), runtime, runtime.start_warm(Path(folder) / "imports", TemplateSettings()))
    await node.order_two(["numpy"])
    launch = node.launch(script, run_id="outlives-1")
    print(json.dumps({"container": node.template(), "folder": str(launch.job_folder)}), flush=True)
    if dies != "later":
        setattr(WaitingContainer, dies, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    run = await runtime.start(launch)
    assert run.is_warm
    print("started", flush=True)
    await asyncio.sleep(600)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(autouse=True)
def _as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root starts containers warm")


@pytest.fixture
async def node(engine: DockerEngine, tmp_path: Path) -> AsyncIterator[ContainerNode]:
    async with container_node(tmp_path, engine, name="warm-faults") as node:
        yield node


def containers(engine: DockerEngine, *which: str) -> list[str]:
    wanted = ("ps", *(which or ("--all",)), "--quiet", "--no-trunc", "--filter", f"label=tiercel.instance={INSTANCE}")
    return engine.command(*wanted).split()


async def test_one_that_was_killed(node: ContainerNode, engine: DockerEngine) -> None:
    waiting = await node.order_two(["numpy"])
    engine.command("kill", waiting)
    run = await node.start(RAN)
    assert run.note == "started cold: its waiting container has ended"
    assert await finish(run) == (0, "ran\n")
    assert waiting not in containers(engine)
    await until(node.template)  # and the next run has one again
    assert (await node.finish_warm(RAN)) == (0, "ran\n")


async def test_one_whose_engine_hung_up(node: ContainerNode, engine: DockerEngine) -> None:
    """As it does when it is started anew; what lives on without it has nobody who could order anything."""
    waiting = await node.order_two(["numpy"])
    (kept,) = node.waiting._kept.values()
    stream: Any = kept.ready and kept.ready._stream
    stream._resp.connection.transport.abort()
    run = await node.start(RAN)
    assert run.note == "started cold: its waiting container has ended"
    assert await finish(run) == (0, "ran\n")
    assert waiting not in containers(engine)


async def test_one_whose_image_was_removed(node: ContainerNode, engine: DockerEngine) -> None:
    image = f"tiercel-warm-faults:{os.getpid()}"
    engine.command("tag", engine.image, image)
    await node.order_two(["numpy"], image=image)
    engine.command("rmi", image)
    with pytest.raises(RunFailedError, match=f"image {image} is not on this node"):
        await node.start(RAN, image=image)


async def test_one_that_the_folders_of_the_run_cannot_be_brought_into(
    node: ContainerNode, engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = await node.order_two(["numpy"])
    monkeypatch.setattr(waiting_container, "_mount", lambda _: "move_mount: Operation not permitted")
    run = await node.start(RAN)
    assert run.note == "started cold: move_mount: Operation not permitted"
    assert await finish(run) == (0, "ran\n")
    assert waiting not in containers(engine)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("setns: Operation not permitted", "Operation not permitted"),
        (waiting_container._ENDED, "its waiting container has ended"),  # there is no such process here
    ],
)
async def test_none_waits_where_the_agent_could_give_it_no_folders(
    node: ContainerNode,
    engine: DockerEngine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    answer: str,
    said: str,
) -> None:
    """As where the engine runs on another machine. It is found out before a run is there, and not for ever."""
    monkeypatch.setattr(waiting_container, "_mount", lambda _: answer)
    for told in (0, 1, 2, 3, 3):
        launch = node.launch("")
        (launch.job_folder / "imports.json").write_text('{"names": ["numpy"], "cpu_seconds": 9.0}')
        assert await node.waiting.take(launch, launch.run_id) == (None, "")
        await until(lambda: caplog.text.count(said) == told)  # noqa: B023 - it is awaited here
        await until(lambda: not containers(engine))
    assert await node.finish(RAN) == (0, "ran\n")


async def test_one_that_would_have_to_grant_less_than_it_has_used(node: ContainerNode) -> None:
    await node.order_two(["numpy"])
    run = await node.start(RAN, memory_bytes=8 << 20)
    assert run.note.startswith("started cold: the engine says: ")
    assert await finish(run) in {(0, "ran\n"), (-9, "")}  # it is little, however it is started


async def test_what_a_run_is_that_nothing_can_be_imported_for_beforehand(
    node: ContainerNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = await node.order_two(["numpy"])
    for changes in ({"warm": False}, {"tenant": ""}, {"program": Program(command_line=("python", "-c", RAN))}):
        run = await node.start(RAN, **changes)
        assert (run.is_warm, run.note) == (False, "")
        assert await finish(run) == (0, "ran\n")
    assert node.template() == waiting
    run = await node.start(RAN, variables={"OMP_PROC_BIND": "true"})
    assert run.note == "started cold: the variable OMP_PROC_BIND takes effect when packages are imported"
    assert await finish(run) == (0, "ran\n")
    await until(node.template)
    launch = node.launch("import numpy\nprint(numpy.mine)")
    (launch.job_folder / "program" / "numpy.py").write_text("mine = 'ran'")
    run = await node.runtime.start(launch)
    assert run.note == "started cold: the program has a module numpy of its own, as the template has"
    assert await finish(run) == (0, "ran\n")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    run = await node.start(RAN)
    assert (run.is_warm, run.note) == (False, "")
    assert await finish(run) == (0, "ran\n")


async def test_an_image_with_another_tiercel_or_none(
    node: ContainerNode, engine: DockerEngine, caplog: pytest.LogCaptureFixture
) -> None:
    find = "import tiercel.trainer_agent.runtimes.containers.waiting as w; p = w.__file__"
    for change, said in (
        ("open(p, 'a').write('# of long ago')", "its image has another version of Tiercel"),
        ("import os; os.remove(p)", "its image has no Tiercel of this version"),
    ):
        name = f"warm-faults-{os.getpid()}"
        engine.command("run", "--user=0", f"--name={name}", "--network=none", engine.image, "-c", f"{find}; {change}")
        image = engine.command("commit", name).strip()
        engine.command("rm", name)
        try:
            for _ in range(2):
                launch = node.launch(RAN, image=image)
                (launch.job_folder / "imports.json").write_text('{"names": ["numpy"], "cpu_seconds": 9.0}')
                await node.waiting.take(launch, launch.run_id)
            await until(lambda: said in caplog.text, seconds=90)  # noqa: B023 - it is awaited here
            assert await node.finish(RAN, image=image) == (0, "ran\n")
            assert caplog.text.count(said) == 1
        finally:
            await until(lambda: not containers(engine))
            engine.command("rmi", image)


async def test_two_that_are_ordered_at_once(node: ContainerNode) -> None:
    await node.order_two(["numpy"])
    runs = await asyncio.gather(*(node.start(RAN) for _ in range(2)))
    assert sorted(run.is_warm for run in runs) == [False, True]
    assert [await finish(run) for run in runs] == [(0, "ran\n")] * 2


async def test_one_that_nobody_needs_ends(engine: DockerEngine, tmp_path: Path) -> None:
    async with container_node(tmp_path, engine, TemplateSettings(idle_seconds=0.5), "warm-faults") as node:
        await node.order_two(["numpy"])
        await until(lambda: not containers(engine))
        assert not node.templates.ready()


async def test_the_one_that_was_used_least_recently_makes_room(
    engine: DockerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with container_node(tmp_path, engine, TemplateSettings(most=1), "warm-faults") as node:
        first = await node.order_two(["numpy"], tenant="a")
        for _ in range(2):
            launch = node.launch("", tenant="b")
            (launch.job_folder / "imports.json").write_text('{"names": ["numpy"], "cpu_seconds": 9.0}')
            await node.waiting.take(launch, launch.run_id)
        assert list(node.templates.ready().values()) == [first]  # it is in use
        monkeypatch.setattr(waiting_containers, "_IN_USE_SECONDS", 0.0)
        second = await node.order_two(["numpy"], tenant="b")
        await until(lambda: containers(engine) == [second])
    await until(lambda: not containers(engine))  # and none is left when the agent ends


@pytest.fixture
async def killed(engine: DockerEngine, tmp_path: Path) -> AsyncIterator[Killed]:
    """An agent that is killed at some moment of a warm start; what it said before."""
    agents: list[WarmProcess] = []
    program, output = tmp_path / "agent.py", tmp_path / "output"
    program.write_text(AGENT)

    def begin(dies: str) -> WarmProcess:
        command = [str(program), str(tmp_path), engine.host, engine.image, INSTANCE, WAITS, dies]
        template = lasting_python(("testing.docker", "testing.warm_node"))
        with Path(os.devnull).open("rb") as nothing, output.open("wb") as said:
            agents.append(template.start_with(command, os.environ, (nothing, said, said), None))
        return agents[-1]

    async def start(dies: str) -> dict[str, str]:
        agent = begin(dies)
        if dies == "later":
            await until(lambda: output.read_text().endswith("started\n"), seconds=60)
            agent.kill()
        await until(lambda: agent.poll() is not None, seconds=60)
        assert agent.returncode == -signal.SIGKILL, output.read_text()
        told: dict[str, str] = json.loads(output.read_text().partition("\n")[0])
        return told

    yield start
    for agent in agents:
        agent.kill()


def launch_of(told: dict[str, str]) -> Launch:
    folder = Path(told["folder"])
    return Launch("outlives-1", folder, Program(script="train.py"), memory_bytes=2 << 30, tenant="acme")


@pytest.mark.parametrize("dies", ["_bring", "_write"])
async def test_an_agent_that_is_killed_before_the_run_begins_leaves_no_run(
    engine: DockerEngine,
    killed: Killed,
    dies: str,
) -> None:
    told = await killed(dies)
    state = ("inspect", "--format", "{{.State.Running}}", told["container"])
    await until(lambda: engine.command(*state).strip() == "false")  # it ends by itself
    async with docker_runtime(engine, "warm-faults") as runtime:
        assert await runtime.adopt(launch_of(told)) is None
        await runtime.remove_leftovers(())
        assert not containers(engine)
        run = await runtime.start(launch_of(told))  # it takes its place, and its name
        (Path(told["folder"]) / "work" / "go").touch()
        assert (await finish(run))[0] == 7


@pytest.mark.parametrize("dies", ["_let_go", "later"])
async def test_an_agent_that_is_killed_once_the_run_has_begun_finds_it_again(
    engine: DockerEngine,
    killed: Killed,
    dies: str,
) -> None:
    told = await killed(dies)
    async with docker_runtime(engine, "warm-faults") as runtime:
        run = await runtime.adopt(launch_of(told))
        assert run is not None
        assert run.description == f"container {told['container'][:12]}, started warm"
        await runtime.remove_leftovers({"outlives-1"})
        # And none waits for the next; the engine may have been about to create one, which nobody starts.
        await until(lambda: containers(engine, "--filter", "status=running") == [told["container"]])
        words, reading = await ready(run)
        (Path(told["folder"]) / "work" / "go").touch()
        assert (await run.wait()).code == 7
        await reading
        assert sorted(b"".join(words).splitlines()) == [b"done", b"on standard error", b"ready"]
        await run.close()
