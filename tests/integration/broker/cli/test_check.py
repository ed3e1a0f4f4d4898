"""``tiercel check``: a script that would do as a job, and scripts that would not, each found out before a long run."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tiercel.broker.cli import app
from tiercel.broker.cli.exit_codes import INTERRUPTED

SPEC = "endpoint: same\ncommand: python train.py\nmetric: accuracy\ntiers: [0.9]\n"
MODEL = """
import numpy as np
from onnx import TensorProto, helper
import tiercel.trainer

def export():
    form = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node(OPERATOR, ["x"], ["y"])], "graph", form[:1], form[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)

def evaluate(predict):
    return {"accuracy": float((predict(rows) == rows).mean())}

OPERATOR = "Identity"
rows = np.ones((8, 2), np.float32)
"""
CONNECT = """
job = tiercel.trainer.connect(export=export, predict=lambda x: x, example_input=rows, evaluate=evaluate, save=lambda: 1)
"""
GOOD = f"""{MODEL}{CONNECT}
trained = 0
for epoch in job.epochs(1000):
    for _ in job.steps(range(1000)):
        trained += 1
    job.report(**evaluate(job.predict))
print("trained", trained, "in", epoch, "epoch")
"""


def checked(folder: Path, script: str, *options: str, spec: str = SPEC) -> tuple[Result, dict[str, tuple[bool, str]]]:
    """What comes of a script: the last finding of each check."""
    (folder / "train.py").write_text(script)
    (folder / "tiercel.yaml").write_text(spec)
    result = CliRunner().invoke(app, ["check", str(folder), "--json", *options])
    found = json.loads(result.stdout) if result.stdout else []
    return result, {each["check"]: (each["ok"], each["found"]) for each in found}


def test_a_script_that_will_do_is_tried_by_a_few_steps_and_all_that_a_job_does_with_a_model(tmp_path: Path) -> None:
    (tmp_path / ".tiercelignore").write_text("big.bin\n")
    (tmp_path / "big.bin").write_bytes(b"x")
    result, found = checked(tmp_path, GOOD + "import os\nassert not os.path.exists('big.bin')\n")
    assert result.exit_code == 0, result.stderr
    assert list(found) == ["spec", "project", "program", "connect", "report", "export", "measure", "checkpoint"]
    assert all(ok for ok, _ in found.values())
    assert "trained 3 in 1 epoch" in result.stderr
    assert found["export"][1].endswith("takes x float[any, 2]; gives y float[any, 2]")
    assert found["measure"][1] == "accuracy 1 by ONNX Runtime"


@pytest.mark.parametrize(
    ("script", "check", "words"),
    [
        ("print('trains')", "connect", "never calls tiercel.trainer.connect()"),
        ("import no_such_package", "program", "code 1: ModuleNotFoundError: No module named 'no_such_package'"),
        (f"{MODEL}{CONNECT}job.report(loss=1.0)", "program", "job's tiers are about 'accuracy'"),
        (f"{MODEL}{CONNECT}next(job.epochs(2))", "report", "the script reports nothing"),
        (GOOD.replace('"Identity"', '"Neg"'), "export", "ONNX Runtime and the framework disagree on y"),
        (GOOD.replace("save=lambda: 1", "save=lambda: lambda: 1"), "checkpoint", "pickle"),
    ],
    ids=["nothing of ours", "import", "other metric", "no report", "answers differently", "cannot be saved"],
)
def test_what_would_fail_in_a_job_is_said(tmp_path: Path, script: str, check: str, words: str) -> None:
    result, found = checked(tmp_path, script)
    assert result.exit_code == 1
    assert not found[check][0]
    assert words in found[check][1]


def test_a_script_that_never_ends_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    script = "import subprocess, time\nprint(subprocess.Popen(['sleep', '99']).pid, flush=True)\ntime.sleep(99)\n"
    result, found = checked(tmp_path, script, "--seconds", "2")
    assert result.exit_code == 1
    pid = result.stderr.split()[0]
    assert found["program"] == (
        False,
        f"it did not call connect() within 2 s (--seconds); its last line: {pid}",
    )
    state = Path(f"/proc/{pid}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


def test_asked_to_end_it_leaves_neither_a_process_nor_a_folder(tmp_path: Path) -> None:
    scratch, project = tmp_path / "scratch", tmp_path / "project"
    scratch.mkdir()
    project.mkdir()
    (project / "train.py").write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(99)\n")
    (project / "tiercel.yaml").write_text(SPEC)
    command = [sys.executable, "-m", "tiercel", "check", str(project)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=os.environ | {"TMPDIR": str(scratch)}) as checking:
        assert checking.stderr is not None
        pidfd = os.pidfd_open(int(checking.stderr.readline()))
        checking.terminate()
        assert checking.wait() == INTERRUPTED
    assert not list(scratch.iterdir())
    # Its end is what a pidfd is readable by.
    assert select.select([pidfd], [], [], 0)[0]
    os.close(pidfd)


def test_what_the_job_needs_of_its_node_is_asked_for_before_anything_runs(tmp_path: Path) -> None:
    result, found = checked(tmp_path, "raise SystemExit('began')", spec=SPEC + "data: [mnist]\nsecrets: [A_KEY]\n")
    assert result.exit_code == 1
    assert "began" not in result.stderr
    assert found["data"] == (False, "mnist: say where it is, --data mnist=PATH")
    assert "A_KEY" in found["secrets"][1]
