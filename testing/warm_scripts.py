"""Scripts that tell whether a run that was started warm is like one that was started cold."""

from __future__ import annotations

CURVE = """
import torch
torch.manual_seed(7)
x, y = torch.randn(512, 64), torch.randn(512, 8)
net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
for epoch in range(4):
    for rows in torch.randperm(512).split(64):
        loss = torch.nn.functional.mse_loss(net(x[rows]), y[rows])
        gradients = torch.autograd.grad(loss, list(net.parameters()))
        with torch.no_grad():
            for weights, gradient in zip(net.parameters(), gradients):
                weights -= 0.1 * gradient
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
