"""Models handed over on request: real exports, checked with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from testing.trainer_service import StartScript, StartServer, sha256_of
from tiercel.v1 import trainer_pb2

SLOW = ("--steps", "4", "--step-sleep-seconds", "0.03")


def assert_is_whole(folder: Path, done: trainer_pb2.ExportDone) -> None:
    """The folder holds one model that answers the reference, and is the one that the message is about."""
    assert sorted(file.name for file in folder.iterdir()) == ["model.onnx", "reference.npz"]
    assert done.error == ""
    assert done.sha256 == sha256_of(folder / "model.onnx")
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    with np.load(folder / "reference.npz") as reference:
        assert sorted(reference) == ["input_input", "output_output"]
        inputs, outputs = reference["input_input"], reference["output_output"]
    assert inputs.shape == (7, 6)
    for rows in (slice(0, 7), slice(2, 3), slice(0, 4)):
        (answers,) = session.run(None, {"input": inputs[rows]})
        np.testing.assert_allclose(answers, outputs[rows], rtol=1e-3, atol=1e-4)


def last_line(output: str) -> str:
    """Digest of weights, gradients and random state, printed at the end."""
    line = output.splitlines()[-1]
    assert "state" in line, output
    return line


def test_every_tier_is_handed_over_and_the_training_does_not_notice(
    run_directory: Path, start_server: StartServer, start_script: StartScript
) -> None:
    server = start_server(tiers=(0.7, 0.9))
    attached = start_script("linear", "--epochs", "6").wait()
    alone = start_script("linear", "--epochs", "6", alone=True).wait()
    assert attached.returncode == alone.returncode == 0, attached.output
    first, second = server.recorded.export_done
    assert (first.delivery_id, second.delivery_id) == ("job-tier-1", "job-tier-2")
    assert first.value >= 0.7
    assert second.value >= 0.9
    for done in (first, second):
        assert_is_whole(run_directory / "exports" / done.delivery_id, done)
    assert sorted(folder.name for folder in (run_directory / "exports").iterdir()) == ["job-tier-1", "job-tier-2"]
    assert last_line(attached.output) == last_line(alone.output)


def test_at_the_end_the_best_model_is_offered_and_handed_over(
    run_directory: Path, start_server: StartServer, start_script: StartScript
) -> None:
    server = start_server(tiers=(0.5,), keep_from=0.5)
    attached = start_script("linear", "--epochs", "12").wait()
    alone = start_script("linear", "--epochs", "12", alone=True).wait()
    assert attached.returncode == alone.returncode == 0, attached.output
    first, best = server.recorded.export_done
    assert (first.delivery_id, best.delivery_id) == ("job-tier-1", "job-best-1")
    *reports, ended = server.recorded.reports
    assert (len(reports), [report.ended for report in reports], ended.ended) == (12, [False] * 12, True)
    values = [report.metrics["accuracy"] for report in reports]
    assert ended.metrics["accuracy"] == max(values) > values[-1], "the last epoch is not the best one"
    assert best.value == pytest.approx(max(values))
    assert best.value > first.value
    assert_is_whole(run_directory / "exports" / "job-best-1", best)
    assert last_line(attached.output) == last_line(alone.output)


def test_nothing_is_offered_that_was_handed_over_or_that_nobody_wants(
    run_directory: Path, start_server: StartServer, start_script: StartScript
) -> None:
    del run_directory
    server = start_server(tiers=(0.5,))
    assert start_script("linear", "--epochs", "12").wait().returncode == 0
    assert not any(report.ended for report in server.recorded.reports)


def test_two_tiers_that_one_report_reaches_are_the_same_file(
    start_server: StartServer, start_script: StartScript
) -> None:
    server = start_server(tiers=(0.01, 0.02), keep_from=0.01)
    assert start_script("linear", "--epochs", "1").wait().returncode == 0
    first, second = server.recorded.export_done
    assert (first.sha256, first.value) == (second.sha256, second.value)
    assert not any(report.ended for report in server.recorded.reports)


def test_a_request_that_comes_late_gets_the_best_weights_so_far(
    run_directory: Path, start_server: StartServer, start_script: StartScript
) -> None:
    server = start_server(tiers=(0.9,), request_exports=False)
    script = start_script("linear", "--epochs", "12")
    server.wait_until(lambda recorded: len(recorded.reports) == 12)
    server.request_export("late", 0.9)  # the finished script waits for it
    finished = script.wait()
    assert finished.returncode == 0, finished.output
    (done,) = server.recorded.export_done
    assert done.value == pytest.approx(max(report.metrics["accuracy"] for report in server.recorded.reports))
    assert server.recorded.reports[-1].metrics["accuracy"] < done.value, "the last epoch is not the best one"
    assert_is_whole(run_directory / "exports" / "late", done)


def test_a_request_made_before_the_target_is_reached_waits_for_it(
    run_directory: Path, start_server: StartServer, start_script: StartScript
) -> None:
    server = start_server(tiers=(0.9,), request_exports=False)
    script = start_script("linear", "--epochs", "8", *SLOW)
    server.wait_until(lambda recorded: recorded.hellos)
    server.request_export("early", 0.9)
    finished = script.wait()
    assert finished.returncode == 0, finished.output
    (done,) = server.recorded.export_done
    assert done.value >= 0.9
    assert_is_whole(run_directory / "exports" / "early", done)


def test_a_target_that_is_never_reached_is_refused_at_the_end(
    start_server: StartServer, start_script: StartScript
) -> None:
    server = start_server(tiers=(2.0,), request_exports=False)
    script = start_script("linear", "--epochs", "5", *SLOW)
    server.wait_until(lambda recorded: recorded.hellos)
    server.request_export("never", 2.0)
    assert script.wait().returncode == 0
    (done,) = server.recorded.export_done
    assert done.error == "the training ended and no report of this run reached the target 2"


def test_asked_twice_it_answers_twice_the_same(
    run_directory: Path, start_server: StartServer, start_script: StartScript
) -> None:
    server = start_server(tiers=(0.7,))
    script = start_script("linear", "--epochs", "200", *SLOW)
    server.wait_until(lambda recorded: recorded.export_done)
    server.request_export("job-tier-1", 0.7)
    server.wait_until(lambda recorded: len(recorded.export_done) == 2)
    server.request_stop()
    assert script.wait().returncode == 0
    first, second = server.recorded.export_done
    assert first == second
    assert_is_whole(run_directory / "exports" / "job-tier-1", first)


def test_an_answer_is_repeated_when_the_agent_was_away(start_server: StartServer, start_script: StartScript) -> None:
    first = start_server(tiers=(0.7,))
    script = start_script("linear", "--epochs", "200", *SLOW)
    first.wait_until(lambda recorded: recorded.export_done)
    first.stop()
    second = start_server(tiers=(0.7,), request_exports=False)
    second.wait_until(lambda recorded: recorded.export_done)
    second.request_stop()
    assert script.wait().returncode == 0
    assert second.recorded.export_done == first.recorded.export_done
