"""A fork of a template does what a cold run does, and has nothing of the template but modules."""

from __future__ import annotations

import asyncio
import json

import pytest

from testing.run_handles import finish
from testing.warm_node import WarmNode
from testing.warm_scripts import CURVE, DRAWS, ENDS, LOADS, SITUATION
from tiercel.trainer_agent.runtimes.contract import Program


async def test_a_run_is_forked_from_what_has_imported_its_modules(node: WarmNode) -> None:
    template = await node.warm_up(["numpy"])
    script = "import sys\nprint('numpy' in sys.modules)\nraise SystemExit(7)"
    assert await node.finish_warm(script) == (7, "True\n")
    assert node.template() == template
    assert await node.finish(script, warm=False) == (7, "False\n")


async def test_with_torch_the_curve_is_the_same_to_the_bit(node: WarmNode) -> None:
    await node.warm_up(["numpy", "torch", "torch.utils", "multiprocessing"])
    cold = await node.finish(CURVE, warm=False, cpu_cores=2.0)
    assert cold[0] == 0
    assert cold[1].endswith("\n2\n")
    assert await node.finish_warm(CURVE, cpu_cores=2.0) == cold
    assert (await node.finish_warm(CURVE, cpu_cores=1.0))[1].endswith("\n1\n")
    first, second = [(await node.finish_warm(DRAWS))[1].split() for _ in range(2)]
    assert len(first) == 6
    assert not set(first) & set(second)
    assert await node.finish_warm(LOADS, cpu_cores=2.0) == (0, "2016.0\n")


async def test_a_fork_finds_itself_as_a_cold_run_does(node: WarmNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "of the agent")
    await node.warm_up(["numpy"])
    program = Program(script="train.py", arguments=("--rate", "0.1 0.2"))
    launches = [node.launch(SITUATION, program=program, variables={"MINE": "x"}, warm=warm) for warm in (False, True)]
    found = []
    for launch in launches:
        run = await node.runtime.start(launch)
        assert run.is_warm is launch.warm
        output = b"".join([chunk.data async for chunk in run.output()]).decode()
        await run.close()
        found.append(json.loads(output.replace(str(launch.job_folder), "JOB")))
    cold, warm = found
    for each in cold:
        assert warm[each] == cold[each], each
    assert "A_SECRET" not in json.dumps(found)


async def test_a_fork_ends_as_a_cold_run_does(node: WarmNode) -> None:
    await node.warm_up(["numpy"])
    cold, warm = [await _endings(node, warm=warm) for warm in (False, True)]
    code, text = cold.pop("is_interrupted")
    assert (code, warm.pop("is_interrupted")[0]) == (-2, -2)  # our own frames are in the traceback
    assert "KeyboardInterrupt" in text
    for how in ENDS.keys() - {"is_interrupted"}:
        assert warm[how] == cold[how], how


async def _endings(node: WarmNode, *, warm: bool) -> dict[str, tuple[int, str]]:
    """How all of them end, at once."""
    launches = {how: node.launch(script, warm=warm) for how, script in ENDS.items()}
    runs = {how: await node.runtime.start(launch) for how, launch in launches.items()}
    assert all(run.is_warm is warm for run in runs.values())
    results = {how: await finish(run) for how, run in runs.items()}
    return {
        how: (code, output.replace(str(launches[how].job_folder), "JOB")) for how, (code, output) in results.items()
    }


async def test_a_module_is_run_as_a_cold_one_is(node: WarmNode) -> None:
    await node.warm_up(["numpy"])
    program = Program(module="this", arguments=("--x",))
    cold = await node.finish("", program=program, warm=False)
    assert await node.finish_warm("", program=program) == cold
    program = Program(module="no_such_module_here")
    cold = await node.finish("", program=program, warm=False)
    assert cold[0] == 1
    assert await node.finish_warm("", program=program) == cold


async def test_what_a_run_does_to_a_module_no_other_run_sees(node: WarmNode) -> None:
    await node.warm_up(["numpy"])
    script = "import numpy\nprint(hasattr(numpy, 'poisoned'))\nnumpy.poisoned = True\n"
    assert [await node.finish_warm(script) for _ in range(2)] == [(0, "False\n")] * 2


async def test_no_template_serves_two_tenants(node: WarmNode) -> None:
    of_acme = await node.warm_up(["numpy"])
    run = await node.start("print('mine')", tenant="other")
    assert not run.is_warm
    await run.close()
    of_other = await node.warm_up(["numpy"], tenant="other")
    assert of_acme != of_other


async def test_a_template_has_nothing_that_is_worth_stealing(node: WarmNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "of the agent")
    await node.warm_up(["numpy"])
    await node.finish_warm("", variables={"TOKEN_OF_EARLIER": "earlier-secret"})
    script = """
import gc, os
print(open("/proc/self/environ").read(), open("/proc/self/cmdline").read())
texts = [each for each in gc.get_objects() if isinstance(each, (dict, list))]
print("earlier-secret" in str([sorted(map(str, each.values())) if type(each) is dict else 0 for each in texts
                               if type(each) is dict and "TOKEN_OF_EARLIER" in map(str, each)]))
"""
    code, output = await node.finish_warm(script)
    assert code == 0
    assert "of the agent" not in output
    assert output.endswith("False\n")
    names = {
        line.partition("=")[0] for line in output.split("\n")[0].split("\0") if "=" in line and "import" not in line
    }
    allowed = {"PATH", "LD_LIBRARY_PATH", "OPENBLAS_CORETYPE", "TZ", "PWD", "HOME", "LANG", "PYTHONUNBUFFERED"}
    allowed |= {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ORT_DISABLE_TELEMETRY", "LC_CTYPE", "_"}
    assert names <= allowed


async def test_many_are_forked_at_once(node: WarmNode) -> None:
    template = await node.warm_up(["numpy"])
    runs = await asyncio.gather(*(node.start(f"print({number})\nraise SystemExit({number})") for number in range(10)))
    assert all(run.is_warm for run in runs)
    assert [(await run.wait()).code for run in runs] == list(range(10))
    for run in runs:
        await run.close()
    assert node.template() == template


async def test_telemetry_stays_off(node: WarmNode) -> None:
    await node.warm_up(["onnxruntime"])
    script = "import os, sys\nprint('onnxruntime' in sys.modules, os.environ['ORT_DISABLE_TELEMETRY'])"
    assert await node.finish_warm(script) == (0, "True 1\n")
