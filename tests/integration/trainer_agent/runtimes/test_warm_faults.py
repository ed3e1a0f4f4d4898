"""What cannot be forked is started cold, and says why; what was forked outlives its template and its agent."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from testing.run_handles import finish, ready
from testing.until import until
from testing.warm_node import WarmNode, interpreter, warm_node
from tiercel.trainer_agent.disk.job_folder import IMPORTS
from tiercel.trainer_agent.limits.contract import Limits
from tiercel.trainer_agent.limits.cooperative import Cooperative
from tiercel.trainer_agent.runtimes.contract import Program
from tiercel.trainer_agent.runtimes.processes import templates
from tiercel.trainer_agent.runtimes.processes.template import START
from tiercel.trainer_agent.runtimes.processes.templates import TemplateSettings

UNFIT = {
    "starts_a_thread": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
        "it starts a thread",
    ),
    "opens_a_file": ("kept = open('/etc/hostname')", "it keeps a file open"),
    "asks_where_home_is": ("import os\nhome = os.path.expanduser('~')", "it reads HOME"),
    "seeds": ("import random\nrandom.seed(7)", "it seeds random numbers"),
    "fails": ("raise RuntimeError('broken')", "it cannot be imported (RuntimeError)"),
    "leaves": ("raise SystemExit(0)", "it cannot be imported (SystemExit)"),
}
FINE = "import random\nnumbers = [random.random() for _ in range(100)]"
WAITS = """
import os, time
print('ready', flush=True)
while not os.path.exists('go'): time.sleep(0.01)
print('done')
raise SystemExit(7)
"""

AGENT = """
import asyncio, json, sys
from pathlib import Path
from testing.warm_node import process_node
from tiercel.trainer_agent.limits.detect import detect

async def main():
    node = process_node(Path(sys.argv[1]), detect("warm-agent", 2.0))
    template = await node.warm_up(["numpy"])
    launch = node.launch(sys.argv[2], run_id="outlives-1")
    run = await node.runtime.start(launch)
    assert run.is_warm
    print(json.dumps({"template": template, "folder": str(launch.job_folder)}), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def test_what_a_template_cannot_bear_is_left_out_and_the_rest_goes_on(node: WarmNode, tmp_path: Path) -> None:
    python = interpreter(tmp_path / "env", {name: text for name, (text, _) in UNFIT.items()} | {"fine": FINE})
    await node.warm_up([*UNFIT, "fine"], python=python)
    script = f"import sys\nprint([name for name in {[*UNFIT, 'fine']} if name in sys.modules])"
    assert await node.finish_warm(script, python=python) == (0, "['fine']\n")
    stored = json.loads(next((tmp_path / "imports").glob("*.json")).read_text())["left_out"]
    assert stored.keys() == UNFIT.keys()
    for name, (_, reason) in UNFIT.items():
        assert stored[name].startswith(reason)


async def test_what_a_package_does_is_its_own_whichever_part_of_it_comes_first(node: WarmNode, tmp_path: Path) -> None:
    """An interpreter lists a package behind its parts."""
    texts = {"asks.__init__": UNFIT["asks_where_home_is"][0], "fine.__init__": "", "fine.asks": "import asks.two"}
    parts = {f"asks.{name}": "" for name in ("one", "two", "three")}
    python = interpreter(tmp_path / "env", texts | parts)
    await node.warm_up([*parts, "asks", "fine.asks", "fine"], python=python)
    stored = json.loads(next((tmp_path / "imports").glob("*.json")).read_text())["left_out"]
    assert stored.keys() == {"asks", "fine.asks"}


async def test_a_package_that_kills_its_template_costs_no_run(node: WarmNode, tmp_path: Path) -> None:
    python = interpreter(tmp_path / "env", {"kills": "import os\nos.kill(os.getpid(), 9)"})
    await node.record(["kills"], python=python)
    for _ in range(5):
        run = await node.start("print('ran')", python=python)
        assert await finish(run) == (0, "ran\n")
        assert not run.is_warm


async def test_a_variable_that_a_package_reads_at_its_import_has_its_effect(node: WarmNode, tmp_path: Path) -> None:
    python = interpreter(tmp_path / "env", {"sets": "import os\nlevel = os.environ.get('LEVEL', 'low')"})
    await node.warm_up(["sets"], python=python)
    script = "import sets\nprint(sets.level)"
    assert await node.finish_warm(script, python=python) == (0, "low\n")
    run = await node.start(script, python=python, variables={"LEVEL": "high"})
    assert run.note == "started cold: the variable LEVEL takes effect when packages are imported"
    assert await finish(run) == (0, "high\n")
    run = await node.start("import sys\nprint(sys.flags.optimize)", python=python, variables={"PYTHONOPTIMIZE": "2"})
    assert run.note == "started cold: the variable PYTHONOPTIMIZE takes effect when packages are imported"
    assert await finish(run) == (0, "2\n")
    assert await node.finish_warm(script, python=python) == (0, "low\n")  # the template was not to blame


async def test_a_variable_that_a_package_sets_at_its_import_is_set(node: WarmNode, tmp_path: Path) -> None:
    sets = "import os\nos.environ.setdefault('LEVEL', 'set')\nos.environ['ALWAYS'] = 'so'"
    python = interpreter(tmp_path / "env", {"sets": sets})
    await node.warm_up(["sets"], python=python)
    script = "import os, sets\nprint(os.environ.get('LEVEL'), os.environ['ALWAYS'])"
    cold = await node.finish(script, python=python, warm=False)
    assert await node.finish_warm(script, python=python) == cold == (0, "set so\n")
    for name in ("LEVEL", "ALWAYS"):
        run = await node.start(script, python=python, variables={name: "mine"})
        assert run.note == f"started cold: the variable {name} takes effect when packages are imported"
        assert await finish(run) == (0, "mine so\n" if name == "LEVEL" else "set so\n")


async def test_a_module_of_the_program_goes_before_one_of_the_template(node: WarmNode, tmp_path: Path) -> None:
    python = interpreter(tmp_path / "env", {"models": "of = 'the node'"})
    await node.warm_up(["models"], python=python)
    launch = node.launch("import models\nprint(models.of)", python=python)
    (launch.job_folder / "program" / "models.yaml").write_text("no module")
    run = await node.runtime.start(launch)
    assert (run.note, await finish(run)) == ("", (0, "the node\n"))
    (launch.job_folder / "program" / "models.py").write_text("of = 'the job'")
    run = await node.runtime.start(launch)
    assert run.note == "started cold: the program has a module models of its own, as the template has"
    assert await finish(run) == (0, "the job\n")
    run = await node.start("", python=python, program=Program(module="models"))
    assert run.note == "started cold: the template has imported models, which is the program"
    await finish(run)


async def test_packages_that_changed_are_imported_anew(node: WarmNode, tmp_path: Path) -> None:
    python = interpreter(tmp_path / "env", {"old": "version = 1"})
    await node.warm_up(["old"], python=python)
    packages = next((tmp_path / "env" / "lib").glob("*/site-packages"))
    (packages / "new.py").write_text("version = 2")
    run = await node.start("import new\nprint(new.version)", python=python)
    assert run.note == "started cold: packages were changed since the template imported them"
    assert await finish(run) == (0, "2\n")
    await node.finish("", python=python)
    await until(node.template)


@pytest.mark.parametrize("said", ["b'no json'", "b'{\"left_out\": 7}'", "b'{\"left_out\": {}}'"])
async def test_a_package_that_speaks_for_its_template_gains_nothing(node: WarmNode, tmp_path: Path, said: str) -> None:
    text = f"import os, sys\nwhile sys.orig_argv[1] == '-c': os.write(int(sys.argv[1]), {said})"
    python = interpreter(tmp_path / "env", {"speaks": text})
    await node.record(["speaks"], python=python)
    for _ in range(3):
        assert await node.finish("print('ran')", python=python) == (0, "ran\n")


async def test_runs_go_on_when_their_template_is_killed(node: WarmNode) -> None:
    template = await node.warm_up(["numpy"])
    launch = node.launch(WAITS)
    run = await node.runtime.start(launch)
    assert run.is_warm
    _, reading = await ready(run)
    os.kill(template, signal.SIGKILL)
    await until(lambda: not node.template())
    (launch.job_folder / "work" / "go").touch()
    assert (await run.wait()).code == 7
    await reading
    await run.close()


async def test_a_run_that_was_ordered_when_its_template_was_killed_is_started_cold(node: WarmNode) -> None:
    template = await node.warm_up(["numpy"])
    os.kill(template, signal.SIGSTOP)
    starting = asyncio.ensure_future(node.start("print('ran')"))
    await asyncio.sleep(0.2)
    assert not starting.done()
    os.kill(template, signal.SIGKILL)
    run = await starting
    assert run.note == "started cold: its template has ended"
    assert not run.is_warm
    assert await finish(run) == (0, "ran\n")


async def test_a_fork_that_fails_before_its_first_line_is_started_cold(node: WarmNode) -> None:
    await node.warm_up(["numpy"])
    launch = node.launch("print('ran')")
    (launch.job_folder / "work").rmdir()
    run = await node.runtime.start(launch)
    assert run.note.startswith("started cold: the fork failed (FileNotFoundError: ")
    assert (await finish(run))[0] == 127  # as it has nowhere to work in, however it is started


async def test_a_run_outlives_its_agent_and_the_templates_do_not(limits: Limits, tmp_path: Path) -> None:
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", AGENT, str(tmp_path), WAITS, stdout=subprocess.PIPE, cwd=Path(__file__).parents[4]
    )
    assert agent.stdout is not None
    async with asyncio.timeout(60):
        told = json.loads(await agent.stdout.readline())
    template, run_id = told["template"], "outlives-1"
    assert not is_gone(template)
    agent.kill()
    await agent.wait()
    await until(lambda: is_gone(template))
    async with warm_node(tmp_path, limits) as node:
        again = await node.runtime.adopt(node.launch("", run_id=run_id))
        assert again is not None
        await node.runtime.remove_leftovers({run_id})
        assert again.pids()
        (Path(told["folder"]) / "work" / "go").touch()
        code, output = await finish(again)
    assert (code, output) == (7, "ready\ndone\n")


async def test_templates_have_a_group_of_their_own_and_what_keeps_a_run_is_beside_the_agent(
    node: WarmNode, limits: Limits, tmp_path: Path
) -> None:
    if not limits.name.startswith("cgroup"):
        pytest.skip("there are no control groups here")
    template = await node.warm_up(["numpy"])
    launch = node.launch(WAITS)
    run = await node.runtime.start(launch)
    _, reading = await ready(run)
    minding, script = json.loads((tmp_path / "minders" / launch.run_id / "processes").read_text())
    assert "/run-.templates" in Path(f"/proc/{template}/cgroup").read_text()
    assert "run-" not in Path(f"/proc/{minding[1]}/cgroup").read_text()
    assert f"/run-{launch.run_id}" in Path(f"/proc/{script[1]}/cgroup").read_text()
    assert run.pids() == [script[1]]
    (launch.job_folder / "work" / "go").touch()
    await reading
    await run.close()


async def test_runs_are_warm_where_there_are_no_control_groups(tmp_path: Path) -> None:
    async with warm_node(tmp_path, Cooperative(2.0)) as node:
        await node.warm_up(["numpy"])
        assert await node.finish_warm("print('ran')") == (0, "ran\n")


async def test_many_that_are_ordered_at_once_have_one_template(node: WarmNode) -> None:
    await node.record(["numpy"])
    runs = await asyncio.gather(*(node.start("") for _ in range(6)))
    children = [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE]
    commands = [child.cmdline() for child in children]
    assert sum(START in command for command in commands) == 1
    for run in runs:
        await finish(run)


async def test_a_template_ends_when_nobody_needs_it(limits: Limits, tmp_path: Path) -> None:
    async with warm_node(tmp_path, limits, TemplateSettings(idle_seconds=0.5)) as node:
        template = await node.warm_up(["numpy"])
        await until(lambda: is_gone(template))
        assert await node.finish("print('ran')") == (0, "ran\n")


async def test_the_template_that_was_used_least_recently_makes_room(
    limits: Limits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with warm_node(tmp_path, limits, TemplateSettings(most=2)) as node:
        first, second = await node.warm_up(["numpy"], tenant="a"), await node.warm_up(["numpy"], tenant="b")
        await node.finish_warm("", tenant="a")
        await node.record(["numpy"], tenant="c")
        await node.finish("", tenant="c")
        assert {node.template("a"), node.template("b")} == {first, second}  # both are in use
        monkeypatch.setattr(templates, "_IN_USE_SECONDS", 0.0)
        await node.finish("", tenant="c")
        await until(lambda: node.template("c"))
        assert node.template("a") == first
        assert is_gone(second)


async def test_a_template_ends_after_so_many_forks(
    limits: Limits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(templates, "_MOST_FORKS", 2)
    async with warm_node(tmp_path, limits) as node:
        template = await node.warm_up(["numpy"])
        for _ in range(2):
            await node.finish_warm("")
        await until(lambda: is_gone(template))
        assert await node.finish("print('ran')") == (0, "ran\n")
        await until(node.template)


async def test_a_disk_that_takes_no_record_costs_no_template(node: WarmNode, tmp_path: Path) -> None:
    (tmp_path / "imports").write_text("no folder")
    await node.warm_up(["numpy"])
    assert await node.finish_warm("print('ran')") == (0, "ran\n")


async def test_a_job_with_warm_starts_off_and_a_node_of_one_job_have_none(node: WarmNode) -> None:
    await node.record(["numpy"])
    assert not node.templates.ready()
    for _ in range(3):
        assert await node.finish("", warm=False) == (0, "")
    assert not node.templates.ready()


async def test_what_a_run_wrote_about_its_imports_is_not_believed(node: WarmNode, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps({"names": ["numpy"], "cpu_seconds": 9.0}))
    for trap in ("link", "pipe", "folder", "huge", "deep", "other", "names"):
        launch = node.launch("")
        path = launch.job_folder / IMPORTS
        match trap:
            case "link":
                path.symlink_to(secret)
            case "pipe":
                os.mkfifo(path)
            case "folder":
                path.mkdir()
            case "huge":
                path.write_text(json.dumps({"names": ["x" * 60] * 5000, "cpu_seconds": 9.0}))
            case "deep":
                path.write_text("[" * 60_000)
            case "other":
                path.write_text('{"names": 7, "cpu_seconds": {}}')
            case "names":
                names = ["../numpy", "os;x", 7, None, "a" * 65, "", "a..b", ".a"]
                path.write_text(json.dumps({"names": names, "cpu_seconds": 9.0}))
        await finish(await node.runtime.start(launch))
    await node.finish("")
    assert not node.templates.ready()
    assert (
        not list((tmp_path / "imports").glob("*"))
        or json.loads(next((tmp_path / "imports").glob("*.json")).read_text())["names"] == []
    )
