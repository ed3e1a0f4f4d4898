"""A version that runs whenever the server is killed does not come back by itself; the others do."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from pathlib import Path

from testing import onnx_models
from testing.serving_process import ServingProcess, serving, wait_for
from tiercel.serving.loading import suspects
from tiercel.serving.runtime.running import left_behind


def kill_while_it_runs(server: ServingProcess, model: str) -> None:
    """Ask for a run that does not end, and kill the server in the middle of it."""
    marks = server.log.with_name(f".serving.json.running.{server.process.pid}")
    body = json.dumps({"inputs": [{"name": "k", "datatype": "INT64", "shape": [], "data": [500_000_000]}]}).encode()
    host, _, port = server.http.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as caller:
        head = b"POST /v2/models/%b/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
        caller.sendall(head % (model.encode(), len(body)) + body)
        wait_for(lambda: b"\1%b/1\0" % model.encode() in marks.read_bytes(), f"a run of {model}")
        server.process.kill()
        server.process.wait()


def test_a_model_that_ran_at_two_deaths_of_the_server_is_not_loaded_again_by_itself(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    onnx_models.put(repository, "killer", 1, onnx_models.counting_loop())
    onnx_models.put(repository, "good", 1, onnx_models.plus(1.0))
    for _ in range(2):
        with serving(repository, tmp_path) as server:
            assert {state for state, _ in server.index().values()} == {"READY"}
            kill_while_it_runs(server, "killer")
    with serving(repository, tmp_path) as server:
        index = server.index()
        assert index["good", "1"][0] == "READY"
        state, reason = index["killer", "1"]
        assert state == "UNAVAILABLE"
        assert "killed more than once while it ran; load it by its number" in reason
        assert server.load("killer").status == 422
        wanted = {"parameters": {"version": "1"}}
        assert server.request("POST", "/v2/repository/models/killer/load", wanted).status == 200
        assert server.index()["killer", "1"][0] == "READY"
    assert not list(tmp_path.glob(".serving.json.running.*"))  # who leaves in peace leaves nothing


_MARK_AND_DIE = """
import os, signal, sys
from pathlib import Path
from tiercel.serving.runtime.running import RunningMarks
marks = RunningMarks(Path(sys.argv[1]))
running, over, gone = (marks.take(name) for name in ("a/1", "b/2", "c/3"))
running.byte[0] = over.byte[0] = gone.byte[0] = 1
over.byte[0] = 0
marks.give_back(gone)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_ran_in_a_process_that_was_killed_is_told_once(tmp_path: Path) -> None:
    beside = tmp_path / "serving.json"
    with contextlib.suppress(subprocess.CalledProcessError):
        subprocess.run([sys.executable, "-c", _MARK_AND_DIE, str(beside)], check=True, timeout=60)
    assert left_behind(beside) == ["a/1"]
    assert left_behind(beside) == []


def test_of_several_that_ran_only_the_newest_is_held_back(tmp_path: Path) -> None:
    old = onnx_models.put(tmp_path, "old", 1, onnx_models.plus(1.0))
    new = onnx_models.put(tmp_path, "new", 1, onnx_models.plus(1.0))
    names = ["old/1", "new/1", "gone/1", "../old/1", "old/x"]
    suspects.accuse(tmp_path, names, 1000.0)
    assert (suspects.why_held_back(old), suspects.why_held_back(new)) == (None, None)
    suspects.accuse(tmp_path, names, 1000.0 + 2 * 3600.0)  # long after
    assert (suspects.why_held_back(old), suspects.why_held_back(new)) == (None, None)
    suspects.accuse(tmp_path, names, 1060.0 + 2 * 3600.0)
    assert suspects.why_held_back(old) is None
    assert suspects.why_held_back(new) is not None
    suspects.forgive(new)
    assert suspects.why_held_back(new) is None
