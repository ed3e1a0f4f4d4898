"""``tiercel submit``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import grpc
import pytest

from testing import jobs_service as wire
from testing.command_line import Tiercel
from testing.jobs_service import Refusal, Script
from tiercel.broker.api.translation import spec_from_proto
from tiercel.core.jobs import Direction
from tiercel.core.validation import validate_spec
from tiercel.v1 import common_pb2, jobs_pb2

ROOT = Path(__file__).parents[4]
FLAGS = ("--endpoint", "digits", "--metric", "loss", "--direction", "min", "--tier", "0.5", "--tier", "0.1")
YAML = """
endpoint: digits
module: digits.train
metric: accuracy
direction: max
tiers: [{target: 0.9}]
resources: {cpu_cores: 1.5, memory: 1GiB}
"""


def test_from_flags(tiercel: Tiercel, script: Script, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    program = ("--script", str(tmp_path / "train.py"), "--arg=--seed", "--arg", "1", "--name", "mine")
    limits = ("--cpu-cores", "2", "--memory", "512MiB", "--max-epochs", "9", "--runtime", "docker", "--image", "mine:1")

    result = tiercel("submit", *FLAGS, *program, *limits, "--endpoint-objective-ms", "50")

    assert result.exit_code == 0
    assert result.stdout == "Submitted j1; follow it with 'tiercel watch j1'.\n"
    spec = script.submitted[0].spec
    assert (spec.script.name, spec.script.content, list(spec.arguments)) == ("train.py", b"print(1)", ["--seed", "1"])
    assert [tier.target for tier in spec.tiers] == [0.5, 0.1]
    assert spec.direction == common_pb2.DIRECTION_MIN
    assert (spec.resources.cpu_cores, spec.resources.memory_bytes) == (2, 512 << 20)
    assert (spec.name, spec.runtime, spec.image, spec.max_epochs) == ("mine", "docker", "mine:1", 9)
    assert spec.endpoint_objective_seconds == 0.05


def test_from_a_file_with_a_flag_on_top(tiercel: Tiercel, script: Script, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(YAML)
    (tmp_path / "train.py").write_text("print(1)")
    changes = ("--cpu-cores", "2", "--script", str(tmp_path / "train.py"), "--variant", "small")

    result = tiercel("submit", str(tmp_path / "job.yaml"), *changes, "--json")

    assert json.loads(result.stdout)["id"] == "j1"
    spec = script.submitted[0].spec
    assert (spec.resources.cpu_cores, spec.resources.memory_bytes) == (2, 1 << 30)
    assert (spec.script.name, spec.module) == ("train.py", ""), "one program takes the other's place"
    assert spec.variant == "small"


def test_the_spec_of_the_readme_is_taken_as_it_stands_there(tiercel: Tiercel, script: Script, tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "tiercel.yaml").write_text(text)
    (tmp_path / "train.py").write_text("print(1)")

    result = tiercel("submit", str(tmp_path))

    assert result.exit_code == 0, result.stderr
    spec = spec_from_proto(script.submitted[0].spec)
    validate_spec(spec)
    assert (spec.endpoint, spec.metric, spec.direction) == ("digits", "accuracy", Direction.MAX)
    assert (spec.command, spec.project is not None) == (("python", "train.py"), True)
    assert [tier.target for tier in spec.tiers] == [0.90, 0.97]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "--script"),
        (("--endpoint", "e"), 1, "metric: is missing"),
        ((*FLAGS, "--tier", "much"), 1, "tiers[2].target"),
        ((*FLAGS, "--script", "missing.py"), 1, "script: missing.py cannot be read"),
        ((*FLAGS, "--max-epochs", "many"), 2, "max-epochs"),
        ((*FLAGS, "--script", __file__, "--module", "m"), 1, "module: is given beside a script; give one of the two"),
        ((*FLAGS, "--modul", "m"), 2, "--module"),
        (("missing.yaml",), 1, "missing.yaml cannot be read"),
    ],
)
def test_what_cannot_be_submitted(
    tiercel: Tiercel, script: Script, arguments: tuple[str, ...], code: int, message: str
) -> None:
    result = tiercel("submit", *arguments)

    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert script.submitted == []


def test_what_the_broker_refuses(tiercel: Tiercel, script: Script) -> None:
    sentence = "tiers[1].target: 0.1 does not come after 0.5."
    refusal = Refusal(grpc.StatusCode.INVALID_ARGUMENT, "invalid_spec", sentence, "tiers[1].target")
    script.refusals["SubmitJob"] = [refusal]

    result = tiercel("submit", *FLAGS, "--module", "m")

    assert (result.exit_code, result.stderr) == (1, f"Error: {sentence}\n")


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (jobs_pb2.JOB_STATE_COMPLETED, 0),
        (jobs_pb2.JOB_STATE_FAILED, 3),
        (jobs_pb2.JOB_STATE_CANCELLED, 3),
        (jobs_pb2.JOB_STATE_MISSED, 4),
    ],
)
def test_waiting_tells_what_happens_and_how_it_ended(
    tiercel: Tiercel, script: Script, state: jobs_pb2.JobState.ValueType, code: int
) -> None:
    script.jobs["j1"] = wire.job()
    script.ends_with["j1"] = wire.job(state=state)
    script.events = [wire.progress_made(1, 0.95), wire.state_changed(2, state, "It is over.")]

    result = tiercel("submit", *FLAGS, "--module", "m", "--wait")

    assert "epoch 1: 0.95" in result.stdout
    assert "It is over." in result.stdout
    assert result.exit_code == code
