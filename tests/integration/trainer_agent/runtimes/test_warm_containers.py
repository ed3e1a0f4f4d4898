"""A container that waited does what a cold one does, and has nothing but modules that its run did not bring."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testing.docker import DockerEngine
from testing.run_handles import finish, ready
from testing.until import until
from testing.warm_node import ContainerNode, container_node
from testing.warm_scripts import CURVE, DRAWS, ENDS, SITUATION
from tiercel.trainer_agent.data.mounts import DataMount
from tiercel.trainer_agent.limits.contract import CpuShare
from tiercel.trainer_agent.limits.cpu import groups_of
from tiercel.trainer_agent.runtimes.contract import Program

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]  # the first session makes the image

WAITS = "import time\nprint('ready', flush=True)\ntime.sleep(600)"
INSTANCE = f"warm-{os.getpid()}"


@pytest.fixture
async def node(engine: DockerEngine, tmp_path: Path) -> AsyncIterator[ContainerNode]:
    if os.geteuid() != 0:
        pytest.skip("only root starts containers warm")
    async with container_node(tmp_path, engine) as node:
        yield node


async def test_it_finds_itself_as_a_cold_run_does(node: ContainerNode, engine: DockerEngine) -> None:
    program = Program(script="train.py", arguments=("--rate", "0.1 0.2"))
    for secrets in ({}, {"A_KEY": "hunter2"}):
        await node.order_two(["numpy"])
        found = []
        for warm in (False, True):
            launch = node.launch(SITUATION, warm=warm, program=program, variables={"MINE": "x"}, secrets=secrets)
            run = await node.runtime.start(launch)
            assert run.is_warm is warm, run.note
            assert "hunter2" not in engine.command("inspect", f"tiercel-{INSTANCE}-{launch.run_id}")
            code, output = await finish(run)
            assert code == 0, output
            found.append(json.loads(output))
        cold, warm_one = found
        for each in (cold, warm_one):
            assert len(each["environment"].pop("HOSTNAME")) == 12
        for each in cold:
            assert warm_one[each] == cold[each], each


async def test_it_ends_as_a_cold_run_does(node: ContainerNode) -> None:
    for how in ("raises", "ends_with_a_number", "kills_itself"):
        cold, _ = await asyncio.gather(node.finish(ENDS[how], warm=False), node.order_two(["numpy"]))
        assert await node.finish_warm(ENDS[how]) == cold, how


async def test_with_torch_the_curve_is_the_same_to_the_bit(node: ContainerNode) -> None:
    cold, _ = await asyncio.gather(
        node.finish(CURVE, warm=False, cpu_cores=2.0), node.order_two(["numpy", "torch", "torch.utils"])
    )
    assert cold[0] == 0
    assert cold[1].endswith("\n2\n")
    run = await node.start(DRAWS + CURVE, cpu_cores=2.0)
    assert run.is_warm, run.note
    code, output = await finish(run)
    assert (code, output.partition("\n")[2]) == cold


async def test_random_numbers_are_drawn_anew(node: ContainerNode) -> None:
    script = "import random, numpy\nprint(random.random(), numpy.random.rand(), hash('text'))"
    found = set()
    for _ in range(2):
        await node.order_two(["numpy"])
        found.update((await node.finish_warm(script))[1].split())
    assert len(found) == 6


async def test_the_limits_of_the_run_are_in_force_before_it_begins(node: ContainerNode) -> None:
    await node.order_two(["numpy"])
    script = "print(len(bytearray(600 << 20)))"
    run = await node.start(script, memory_bytes=400 << 20, share=CpuShare(0.25, 0.5))
    assert run.is_warm, run.note
    async with asyncio.timeout(60):
        how = await run.wait()
    await run.close()
    assert (how.code, "more memory than its limit" in how.reason) == (-9, True)
    await until(node.template)
    run = await node.start(WAITS, memory_bytes=0, share=CpuShare(0.25, 0.5))
    assert run.is_warm, run.note
    _, reading = await ready(run)
    assert _kernels(run.pids()[0], "cpu", "cpu.cfs_quota_us", "cpu.max").split()[0] == "50000"
    assert int(_kernels(run.pids()[0], "memory", "memory.limit_in_bytes", "memory.max")) >= 1 << 60
    reading.cancel()
    await run.close()


def _kernels(pid: int, controller: str, of_v1: str, of_v2: str) -> str:
    """What the kernel has for a process."""
    of_process = groups_of(Path("/proc"), pid)
    if controller in of_process:
        path = Path("/sys/fs/cgroup") / controller / of_process[controller].lstrip("/") / of_v1
    else:
        path = Path("/sys/fs/cgroup") / of_process[""].lstrip("/") / of_v2
    return path.read_text().strip()


async def test_it_has_its_data_and_nothing_is_mounted_on_the_machine(node: ContainerNode, tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "one.txt").write_text("a picture")
    (tmp_path / "rows.csv").write_text("1,2")
    (tmp_path / "scratch").mkdir(mode=0o777)
    (tmp_path / "scratch").chmod(0o777)
    data = (
        DataMount("images", tmp_path / "images", is_folder=True),
        DataMount("rows", tmp_path / "rows.csv", is_folder=False),
    )
    script = """
import os
print(open(os.environ["TIERCEL_DATA_IMAGES"] + "/one.txt").read(), open(os.environ["TIERCEL_DATA_ROWS"]).read())
open(os.environ["TIERCEL_SCRATCH"] + "/note", "w").write("kept")
for path in ("/tiercel-data/images/x", "/tiercel-data/x", "/tiercel-data/rows/rows.csv", "/tiercel-data/rows/x"):
    try:
        open(path, "a")
        print("could write", path)
    except OSError:
        pass
mounts = [line.split(" - ")[0].split() for line in open("/proc/self/mountinfo")]
print([("ro" in m[5], "nosuid" in m[5], "nodev" in m[5]) for m in mounts if m[4].startswith("/tiercel-data/")])
print(any(field.startswith(("shared", "master")) for m in mounts if "tiercel" in m[4] for field in m[6:]))
print(sorted(os.listdir("/tiercel")))
"""
    before = Path("/proc/self/mountinfo").read_text()
    await node.order_two(["numpy"])
    run = await node.start(script, data=data, scratch=tmp_path / "scratch")
    assert run.is_warm, run.note
    on_machine = Path("/proc/self/mountinfo").read_text()
    code, output = await finish(run)
    assert (code, output.splitlines()) == (
        0,
        [
            "a picture 1,2",
            "[(True, True, True), (True, True, True)]",
            "False",
            "['checkpoints', 'exports', 'imports.json', 'program', 'token', 'work']",
        ],
    )
    assert str(tmp_path) not in on_machine.replace(before, "")
    assert (tmp_path / "scratch" / "note").read_text() == "kept"
    assert (tmp_path / "images" / "one.txt").read_text() == "a picture"


async def test_it_has_nothing_of_the_agent_of_other_tenants_or_of_what_waited(
    node: ContainerNode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("A_SECRET", "of the agent")
    of_acme = await node.order_two(["numpy"])
    of_other = await node.order_two(["numpy"], tenant="other")
    assert of_acme != of_other
    script = f"""
import gc, os
for name in ("environ", "cmdline"):
    for process in ("self", "1"):
        text = open(f"/proc/{{process}}/{{name}}").read()
        print(any(word in text for word in ("of the agent", "acme", "hunter2", {str(tmp_path)!r})))
print(len(os.listdir("/proc/self/fd")))
print(os.path.exists({str(tmp_path)!r}), os.listdir("/tmp"), sorted(n for n in os.listdir("/proc") if n.isdecimal()))
"""
    run = await node.start(script, variables={"MINE": "x"}, secrets={"A_KEY": "hunter2"})
    assert run.is_warm, run.note
    code, output = await finish(run)
    assert code == 0, output
    assert output.splitlines()[:4] == ["False"] * 4
    assert output.splitlines()[4] == "4"
    assert output.splitlines()[5].startswith("False [] ['1', '")
    assert node.template("other") == of_other


async def test_it_has_the_environment_of_its_runs_and_no_others(
    node: ContainerNode, engine: DockerEngine, tmp_path: Path
) -> None:
    told = "import sys; print(sys.base_prefix, f'python{sys.version_info[0]}.{sys.version_info[1]}', sys.path[-1])"
    base, version, packages = engine.command("run", "--rm", "--network=none", engine.image, "-c", told).split()
    pythons = []
    for number in range(2):
        venv = tmp_path / f"env-{number}" / "venv"
        own = venv / "lib" / version / "site-packages"
        own.mkdir(parents=True)
        (venv / "bin").mkdir()
        (venv / "bin" / "python").symlink_to(f"{base}/bin/python3")
        (venv / "pyvenv.cfg").write_text(f"home = {base}/bin\n")
        (own / "layer.pth").write_text(f"import site; site.addsitedir({packages!r})\n")
        (own / "alpha.py").write_text(f"VERSION = {number}")
        pythons.append(str(venv / "bin" / "python"))
    waiting = await node.order_two(["numpy", "alpha"], python=pythons[0])
    script = "import sys\nprint('alpha' in sys.modules)\nimport alpha\nprint(alpha.VERSION, sys.executable)"
    assert await node.finish(script, python=pythons[1]) == (0, "False\n1 /tiercel-environment/bin/python\n")
    assert node.template() == waiting
    assert await node.finish_warm(script, python=pythons[0]) == (0, "True\n0 /tiercel-environment/bin/python\n")
