from __future__ import annotations

import subprocess
import sys

_ORPHAN = """
import os, time
from tiercel.serving.verification.reader import end_with_parent
parent = os.getpid()
if os.fork() == 0:
    while os.getppid() == parent:
        time.sleep(0.001)
    end_with_parent(parent)
    print("left over", flush=True)
os._exit(0)
"""


def test_who_begins_after_its_parent_has_ended_ends_too() -> None:
    done = subprocess.run([sys.executable, "-c", _ORPHAN], capture_output=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == (b"", b"")
