"""Reports over a real Unix socket, from a real process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tiercel.trainer
from testing.trainer_service import SCRIPTS, TOKEN, StartScript, StartServer, TrainerServer, TrainingProcess
from testing.warm_python import WarmPython
from tiercel.trainer_agent.trainer import attaching

# Slow enough for a test to step in between two epochs.
SLOW = ("--steps", "4", "--step-sleep-seconds", "0.03")


def test_reports_arrive_numbered_and_the_spec_caps_the_epochs(
    start_server: StartServer, start_script: StartScript
) -> None:
    server = start_server(max_epochs=3)
    finished = start_script("linear", "--epochs", "50").wait()
    assert finished.returncode == 0, finished.output
    assert [(report.sequence, report.epoch) for report in server.recorded.reports] == [(1, 1), (2, 2), (3, 3)]
    assert all(0 <= report.metrics["accuracy"] <= 1 for report in server.recorded.reports)
    assert [hello.token for hello in server.recorded.hellos] == [TOKEN]
    assert [line.split("=")[0] for line in finished.output.splitlines()[:3]] == [
        f"epoch {number}  accuracy" for number in (1, 2, 3)
    ]
    assert "training ends here, as the job's max_epochs is 3; the script asks for more" in finished.output
    assert TOKEN not in finished.output


def test_a_script_with_a_loop_of_its_own_tells_the_epoch_itself(
    start_server: StartServer, tmp_path: Path, python: WarmPython
) -> None:
    server = start_server()
    script = tmp_path / "own_loop.py"
    script.write_text(
        "import numpy as np, torch, tiercel.trainer\n"
        "job = tiercel.trainer.connect(torch.nn.Linear(1, 1), np.ones((1, 1), np.float32), lambda predict: 0.1)\n"
        "job.report(accuracy=0.0)\n"
        "job.report(epoch=5, accuracy=0.1)\n"
        "job.report(accuracy=0.2)\n"
    )
    finished = TrainingProcess(str(script), run_directory=server.run_directory, python=python).wait()
    assert finished.returncode == 0, finished.output
    assert [report.epoch for report in server.recorded.reports] == [0, 5, 5]
    assert finished.output.splitlines()[1] == "epoch 5  accuracy=0.1"


def test_unacknowledged_reports_are_sent_again_when_the_agent_is_back(
    start_server: StartServer, start_script: StartScript
) -> None:
    first = start_server(acknowledge=False)
    script = start_script("linear", "--epochs", "8", *SLOW)
    first.wait_until(lambda recorded: len(recorded.reports) >= 2)
    first.stop()
    second = start_server()
    finished = script.wait()
    assert finished.returncode == 0, finished.output
    assert [report.sequence for report in second.recorded.reports] == list(range(1, 9))


def test_training_goes_on_while_the_agent_is_away(start_server: StartServer, start_script: StartScript) -> None:
    server = start_server()
    script = start_script("linear", "--epochs", "20", *SLOW, TIERCEL_EXIT_WAIT_SECONDS="0.5")
    server.wait_until(lambda recorded: recorded.reports)
    server.stop()
    finished = script.wait()
    assert finished.returncode == 0, finished.output
    assert "epoch 20  accuracy" in finished.output
    assert "no connection to the node's agent" in finished.output
    assert "did not take all reports and models within 0.5 s" in finished.output


@pytest.mark.parametrize("folder", ["a" * 120, "50%20 of it?#"])
def test_a_socket_works_whatever_its_path(tmp_path: Path, folder: str, python: WarmPython) -> None:
    run_directory = tmp_path / folder / "run"
    server = TrainerServer(run_directory)
    server.start()
    try:
        script = (str(SCRIPTS / "linear.py"), "--epochs", "2")
        finished = TrainingProcess(*script, run_directory=run_directory, python=python).wait()
    finally:
        server.stop()
    assert finished.returncode == 0, finished.output
    assert [report.sequence for report in server.recorded.reports] == [1, 2]


def test_without_an_agent_the_script_ends_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch import nn  # where one worker pays for it, and not where all of them collect the tests

    (tmp_path / "token").write_text("secret")
    monkeypatch.setenv("TIERCEL_RUN_DIR", str(tmp_path))
    monkeypatch.setattr(attaching, "WELCOME_WAIT_SECONDS", 0.2)
    monkeypatch.setattr(attaching, "WELCOME_CPU_SECONDS", 0.0)
    with pytest.raises(tiercel.trainer.AgentUnreachableError, match=r"agent\.sock for \d+\.\d s; see the agent's log"):
        tiercel.trainer.connect(nn.Linear(1, 1), np.ones((1, 1), dtype=np.float32), lambda predict: 0.0)
