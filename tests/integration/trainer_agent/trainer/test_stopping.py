"""Stopping, and going on where a run was."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from testing.trainer_service import StartScript, StartServer, TrainerServer, TrainingProcess, wait_for

SLOW = ("--steps", "4", "--step-sleep-seconds", "0.03")


Stop = Callable[[TrainerServer, TrainingProcess], None]


def finished_epochs(run_directory: Path) -> int:
    import torch  # where one worker pays for it, and not where all of them collect the tests

    state = torch.load(run_directory / "checkpoints" / "latest.pt", weights_only=True)
    return int(state["run"]["finished_epochs"])


def epochs_of(server: TrainerServer) -> list[int]:
    return [report.epoch for report in server.recorded.reports]


def by_request(server: TrainerServer, script: TrainingProcess) -> None:
    server.request_stop("a better job wants the node")


def by_signal(server: TrainerServer, script: TrainingProcess) -> None:
    script.process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("stop", "reason"), [(by_request, "a better job wants the node"), (by_signal, "the process was sent SIGTERM")]
)
def test_a_stop_leaves_a_checkpoint_from_which_the_next_run_goes_on(
    run_directory: Path, start_server: StartServer, start_script: StartScript, stop: Stop, reason: str
) -> None:
    server = start_server()
    # Checkpoints are far from due: it is the stop that makes one.
    script = start_script("linear", "--epochs", "200", "--checkpoint-seconds", "1000", *SLOW)
    server.wait_until(lambda recorded: len(recorded.reports) >= 2)
    stop(server, script)
    finished = script.wait()
    assert finished.returncode == 0, finished.output
    assert f"stopping: {reason}" in finished.output
    assert finished.output.splitlines()[-1].startswith("mode"), "the script's own last lines run"
    done = finished_epochs(run_directory)
    assert 2 <= done < 200
    server.stop()

    second = start_server(run_id="job-2")
    finished = start_script("linear", "--epochs", str(done + 2)).wait()
    assert finished.returncode == 0, finished.output
    assert f"going on after epoch {done}" in finished.output
    assert epochs_of(second) == [done + 1, done + 2]
    assert [report.sequence for report in second.recorded.reports] == [1, 2], "a new attempt counts from 1"


def test_a_run_that_is_told_to_finish_ends_early_and_hands_over_its_best_model(
    run_directory: Path, start_server: StartServer, start_script: StartScript
) -> None:
    server = start_server(tiers=(0.7,), keep_from=0.7)
    script = start_script("linear", "--epochs", "2000", *SLOW)
    server.wait_until(lambda recorded: len(recorded.reports) >= 3 and recorded.export_done)
    server.request_stop("the time that its job has is over", finish=True)
    finished = script.wait()
    assert finished.returncode == 0, finished.output
    assert "finishing: the time that its job has is over" in finished.output
    assert "stopping" not in finished.output
    assert finished_epochs(run_directory) < 2000
    best = max(report.metrics["accuracy"] for report in server.recorded.reports)
    delivered = max(done.value for done in server.recorded.export_done)
    assert delivered == pytest.approx(best), "the best one is handed over, at the tier or at the end"


def test_training_in_two_runs_is_bit_for_bit_training_in_one(
    start_server: StartServer, start_script: StartScript
) -> None:
    server = start_server(tiers=(0.7, 0.9))
    for epochs in ("2", "6"):
        finished = start_script("linear", "--epochs", epochs).wait()
        assert finished.returncode == 0, finished.output
    alone = start_script("linear", "--epochs", "6", alone=True).wait()
    assert finished.output.splitlines()[-1] == alone.output.splitlines()[-1]
    assert [report.sequence for report in server.recorded.reports] == [1, 2, 3, 4, 5, 6], "the same run counts on"
    assert [done.delivery_id for done in server.recorded.export_done] == ["job-tier-1", "job-tier-2"]


def test_after_a_kill_reports_and_weights_that_nobody_took_are_not_lost(
    run_directory: Path, start_server: StartServer, start_script: StartScript
) -> None:
    server = start_server(tiers=(0.7,), acknowledge=False, request_exports=False)
    script = start_script("linear", "--epochs", "200", *SLOW)
    server.wait_until(lambda recorded: any(report.metrics["accuracy"] >= 0.7 for report in recorded.reports))
    reached = len(server.recorded.reports)
    wait_for(
        lambda: (run_directory / "checkpoints" / "latest.pt").exists() and finished_epochs(run_directory) >= reached
    )
    script.kill()
    server.stop()

    done = finished_epochs(run_directory)
    second = start_server(tiers=(0.7,), run_id="job-2", request_exports=False)
    script = start_script("linear", "--epochs", str(done))  # nothing is left to train
    second.wait_until(lambda recorded: len(recorded.reports) == done)
    second.request_export("job-tier-1", 0.7)
    finished = script.wait()
    assert finished.returncode == 0, finished.output
    assert epochs_of(second) == list(range(1, done + 1))
    (handed_over,) = second.recorded.export_done
    assert handed_over.error == ""
    assert handed_over.value >= 0.7


def test_a_checkpoint_of_another_model_is_refused_in_words(
    run_directory: Path, start_server: StartServer, start_script: StartScript
) -> None:
    start_server()
    assert start_script("linear", "--epochs", "1").wait().returncode == 0
    finished = start_script("faulty", "none").wait()
    assert finished.returncode == 1
    assert "CheckpointError: the checkpoint of an earlier run of this job does not fit the script" in finished.output


def test_of_the_checkpoint_of_another_job_the_weights_alone_come_along(
    run_directory: Path, start_server: StartServer, start_script: StartScript
) -> None:
    server = start_server(tiers=(0.5,), keep_from=0.5, run_id="source-1")
    assert start_script("linear", "--epochs", "12").wait().returncode == 0
    begun_at = server.recorded.reports[0].metrics["accuracy"]
    server.stop()

    second = start_server(tiers=(0.5,), keep_from=0.5, run_id="other-1", max_epochs=2)
    finished = start_script("linear", "--epochs", "12").wait()
    assert finished.returncode == 0, finished.output
    assert "starting with the weights of job source" in finished.output
    assert epochs_of(second)[:2] == [1, 2]
    assert second.recorded.reports[0].metrics["accuracy"] > begun_at, "it knows what the other one has learnt"
    assert [done.delivery_id for done in second.recorded.export_done][:1] == ["job-tier-1"], "its tiers begin anew"
    second.stop()

    start_server(run_id="third-1")
    finished = start_script("faulty", "none").wait()
    assert finished.returncode == 1
    assert "CheckpointError: warm_start: the weights of job other do not fit this script's model" in finished.output


def test_a_new_attempt_begins_by_saying_which_model_it_has(
    run_directory: Path, start_server: StartServer, start_script: StartScript
) -> None:
    server = start_server(tiers=(0.7, 0.9), request_exports=False)
    script = start_script("linear", "--epochs", "200", *SLOW)
    server.wait_until(lambda recorded: any(report.metrics["accuracy"] >= 0.9 for report in recorded.reports))
    best = max(report.metrics["accuracy"] for report in server.recorded.reports)
    epochs = len(server.recorded.reports) + 1
    wait_for(
        lambda: (run_directory / "checkpoints" / "latest.pt").exists() and finished_epochs(run_directory) >= epochs
    )
    script.kill()
    server.stop()

    second = start_server(tiers=(0.7, 0.9), run_id="job-2")
    finished = start_script(
        "linear", "--epochs", str(finished_epochs(run_directory))
    ).wait()  # nothing is left to train
    assert finished.returncode == 0, finished.output
    assert second.recorded.reports[0].sequence == 1
    assert max(report.metrics["accuracy"] for report in second.recorded.reports) >= best
    assert [(done.delivery_id, done.error) for done in second.recorded.export_done] == [
        ("job-tier-1", ""),
        ("job-tier-2", ""),
    ]
