"""Nothing of ours reports to anybody: ONNX Runtime's wheels would, from the moment of their import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_LOOK = """
import importlib, json, os, sys
importlib.import_module(sys.argv[1])
import onnxruntime
status = open("/proc/self/status").read()
threads = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("Threads:"))
files = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
traced = [name for name in sys.modules if name.startswith("opentelemetry")]
print(json.dumps({"threads": threads, "files": [each for each in files if os.path.isfile(each)], "traced": traced}))
"""


@pytest.mark.parametrize(
    "module",
    [
        "tiercel.serving.server",
        "tiercel.serving.verification.verifier_process",
        "tiercel.trainer",
        "tiercel.broker.cli",
        "benchmarks.serving.bare_ceiling",
    ],
)
def test_importing_onnx_runtime_starts_no_thread_and_opens_no_file(tmp_path: Path, module: str) -> None:
    kept = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    pools = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # each copy of them would be a thread more
    ran = subprocess.run(
        [sys.executable, "-c", _LOOK, module],
        env=environment | pools | {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        check=True,
        timeout=110,
    )
    assert json.loads(ran.stdout) == {"threads": 1, "files": [], "traced": []}
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
