"""A fork of a template does what a cold run does, and has nothing of the template but modules."""

from __future__ import annotations

import asyncio
import json

import pytest

from testing.run_handles import finish
from testing.warm_node import WarmNode
from tiercel.trainer_agent.runtimes.contract import Program

CURVE = """
import torch
torch.manual_seed(7)
x, y = torch.randn(512, 64), torch.randn(512, 8)
net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for epoch in range(4):
    for rows in torch.randperm(512).split(64):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
    print(loss.item().hex(), net[0].weight.sum().item().hex())
print(torch.get_num_threads())
"""
SITUATION = """
import json, os, signal, sys, threading
umask = os.umask(0)
os.umask(umask)
files = {n: os.readlink(f"/proc/self/fd/{n}").partition(":")[0] for n in os.listdir("/proc/self/fd")
         if os.path.exists(f"/proc/self/fd/{n}")}
print(json.dumps({
    "environment": dict(os.environ),
    "type": type(os.environ).__name__,
    "files": files,
    "signals": {int(n): str(signal.getsignal(n)) for n in signal.valid_signals()},
    "mask": len(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "ignored": [line for line in open("/proc/self/status") if line.startswith(("SigIgn", "SigBlk", "Seccomp"))],
    "umask": umask,
    "argv": [sys.argv, sys.orig_argv],
    "path": sys.path,
    "flags": str(sys.flags),
    "main": sorted(globals()),
    "file": [__file__, __name__, str(__spec__), str(type(__loader__)), __package__],
    "modules": sys.modules["__main__"].__dict__ is globals(),
    "folder": os.getcwd(),
    "leads": os.getsid(0) == os.getpid() == os.getpgrp(),
    "threads": [thread.name for thread in threading.enumerate()],
    "output": [[s.encoding, s.errors, s.write_through, s.mode, str(s.name)] for s in (sys.stdout, sys.stderr)],
    "input": sys.stdin.read(),
    "ended_first": open("/proc/self/oom_score_adj").read(),
    "limits": open("/proc/self/limits").read(),
    "scheduling": [os.nice(0), os.sched_getscheduler(0), sorted(os.sched_getaffinity(0))],
}, default=str))
"""
ENDS = {
    "raises": "def fail():\n    raise ValueError('no')\nfail()",
    "says_text": "raise SystemExit('said so')",
    "ends_with_a_number": "import sys\nsys.exit(9)",
    "ends_at_once": "import os\nprint('before')\nos._exit(3)",
    "kills_itself": "import os\nos.kill(os.getpid(), 9)",
    "is_no_python": "def (:",
    "is_interrupted": "raise KeyboardInterrupt",
    "recurses": (
        "import sys\nsys.setrecursionlimit(5000)\ndef deep(n):\n    return n and deep(n - 1)\n"
        "print(deep(4900))\ndeep(6000)"
    ),
    "has_an_exit_handler": "import atexit\natexit.register(print, 'last')\nprint('first')\n1 / 0",
    "has_a_thread": (
        "import threading, time\n"
        "threading.Thread(target=lambda: (time.sleep(0.3), print('thread', __name__))).start()\nprint('main')"
    ),
    "has_a_hook": "import sys\nsys.excepthook = lambda *how: print('hooked', how[0].__name__)\nraise OSError",
    "pickles_its_classes": (
        "import pickle\nclass Mine:\n    pass\nprint(type(pickle.loads(pickle.dumps(Mine()))) is Mine, Mine.__module__)"
    ),
    "leaves_output_unflushed": "import os\nos.write(1, b'one ')\nprint('two', end='')",
    "spawns": (
        "import multiprocessing as mp, os\n"
        "def work(n):\n    return n * n\n"
        "if __name__ == '__main__':\n"
        "    for how in ('spawn', 'fork', 'forkserver'):\n"
        "        with mp.get_context(how).Pool(2) as pool:\n            print(how, pool.map(work, [1, 2, 3]))\n"
    ),
    "starts_itself": (
        "import subprocess, sys\n"
        "print(subprocess.run([sys.executable, '-c', 'import sys; print(sys.flags, len(sys.path))'], "
        "capture_output=True, text=True).stdout)"
    ),
}
LOADS = """
import torch
from torch.utils.data import DataLoader, TensorDataset
if __name__ == "__main__":
    data = TensorDataset(torch.arange(64.0))
    print(sum(batch[0].sum().item() for batch in DataLoader(data, batch_size=8, num_workers=2)))
"""
DRAWS = """
import random, uuid, numpy, torch, multiprocessing
print(random.random(), numpy.random.rand(), torch.rand(1).item(), uuid.uuid4(), numpy.random.default_rng().random(),
      bytes(multiprocessing.current_process().authkey).hex())
"""


async def test_a_run_is_forked_from_what_has_imported_its_modules(node: WarmNode) -> None:
    template = await node.warm_up(["numpy"])
    script = "import sys\nprint('numpy' in sys.modules)\nraise SystemExit(7)"
    assert await node.finish_warm(script) == (7, "True\n")
    assert node.template() == template
    assert await node.finish(script, warm=False) == (7, "False\n")


async def test_with_torch_the_curve_is_the_same_to_the_bit(node: WarmNode) -> None:
    await node.warm_up(["numpy", "torch", "torch.utils", "multiprocessing"])
    for cores in (1.0, 2.0):
        cold = await node.finish(CURVE, warm=False, cpu_cores=cores)
        assert cold[0] == 0
        assert cold[1].endswith(f"\n{int(cores)}\n")
        assert await node.finish_warm(CURVE, cpu_cores=cores) == cold
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
