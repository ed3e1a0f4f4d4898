from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tiercel.core.locks import LockHeldError, is_held, open_holder, read_name, read_pid, take


def test_a_lock_is_held_by_one_and_says_by_whom(tmp_path: Path) -> None:
    path = tmp_path / "agent.lock"
    assert not is_held(path)
    with take(path):
        assert is_held(path)
        assert path.read_text() == f"{os.getpid()}\n"
        with pytest.raises(LockHeldError, match=rf"process {os.getpid()} ") as caught, take(path):
            pass
        assert caught.value.pid == os.getpid()
        holder = open_holder(path)
        assert holder is not None
        assert holder[0] == os.getpid()
        os.close(holder[1])
    assert not is_held(path)
    assert open_holder(path) is None, "the file is still there, its holder is not"
    with take(path, "node-7"):
        assert (read_pid(path), read_name(path)) == (os.getpid(), "node-7")
        assert path.read_text() == f"{os.getpid()} node-7\n"
        with pytest.raises(LockHeldError), take(path):
            pass


def test_a_lock_ends_with_its_holder_and_is_not_inherited(tmp_path: Path) -> None:
    path = tmp_path / "agent.lock"
    script = (
        "import subprocess, sys, pathlib\n"
        "from tiercel.core.locks import take\n"
        f"with take(pathlib.Path({str(path)!r})):\n"
        "    child = subprocess.Popen(['sleep', '60'], close_fds=False, stdout=-3, stdin=-3)\n"
        "    print(child.pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    assert is_held(path)
    holder.kill()
    holder.communicate()
    try:
        assert not is_held(path)
    finally:
        os.kill(child, 9)


def test_a_holder_that_does_not_sign_is_told(tmp_path: Path) -> None:
    path = tmp_path / "up.lock"
    with take(path):
        path.write_text("")
        with pytest.raises(LockHeldError, match="process unknown holds"):
            open_holder(path)


def test_what_is_no_lock_is_not_held(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not is_held(tmp_path / "missing")
    assert not is_held(tmp_path / "file" / "below")
    assert (read_pid(tmp_path / "missing"), read_name(tmp_path / "file")) == (0, "")
