"""Commands of shells that are forks of a template: whoever types them sees no difference."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from testing.document_runs import WARM
from testing.warm_python import lasting_python

SCRIPT = """\
import json, os, sys, time
print("complaint", file=sys.stderr, flush=True)
print(json.dumps([sys.argv, os.getcwd(), os.environ["SHOWN"], sys.stdin.read()]), flush=True)
time.sleep(float(sys.argv[1]))
sys.exit(3)
"""


def test_a_command_reads_prints_and_ends_as_one_that_was_started_and_is_sent_signals(tmp_path: Path) -> None:
    door = lasting_python(()).door
    (tmp_path / "script.py").write_text(SCRIPT)

    def typed(how: str, seconds: int) -> tuple[bytes, bytes, int]:
        """What it says and how it ends; one that lasts is asked to end once it has said all."""
        process = subprocess.Popen(
            ["bash", "-c", f'echo typed | exec {how} script.py {seconds} "two words"'],
            cwd=tmp_path,
            env=os.environ | {"SHOWN": "as it is", "WARM_PYTHON": str(door)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[door],
            start_new_session=True,
        )
        assert process.stdout is not None
        first = process.stdout.readline()
        if seconds:
            os.killpg(process.pid, signal.SIGTERM)
        rest, complaint = process.communicate(timeout=60)
        return first + rest, complaint, process.returncode

    for seconds, status in ((0, 3), (600, 143)):
        warm, started = typed(WARM, seconds), typed("python", seconds)
        assert warm == started
        assert warm[2] == status or warm[2] == -signal.SIGTERM
    assert typed(WARM, 0)[1] == b"complaint\n"
