"""Scripts that go wrong, and what the agent and the log hear of it."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from testing.trainer_service import StartScript, StartServer
from tiercel.v1 import common_pb2


@pytest.mark.parametrize(
    ("fault", "tier", "reason"),
    [
        ("random", 0.8, r"cannot be handed over as ONNX\. the model answers the same rows otherwise each time"),
        ("uncopyable", 0.8, r"the model cannot be copied"),
        ("lying", 0.98, r"measured again and has accuracy=0\.\d+, which misses the target 0\.98 although 0\.99 had"),
    ],
)
def test_a_model_that_cannot_be_handed_over_is_refused_in_words_and_training_goes_on(
    run_directory: Path, start_server: StartServer, start_script: StartScript, fault: str, tier: float, reason: str
) -> None:
    server = start_server(tiers=(tier,))
    finished = start_script("faulty", fault).wait()
    assert finished.returncode == 0, finished.output
    (done,) = server.recorded.export_done
    assert done.sha256 == ""
    assert done.falls_short == (fault == "lying"), "only better weights may make up for what went wrong"
    assert re.search(reason, done.error), done.error
    assert [report.epoch for report in server.recorded.reports] == [1, 2, 3, 4]
    assert list((run_directory / "exports").iterdir()) == []


def test_nan_is_reported_as_it_is(start_server: StartServer, start_script: StartScript) -> None:
    server = start_server(tiers=(0.8,))
    finished = start_script("faulty", "nan").wait()
    assert finished.returncode == 0
    assert server.recorded.reports[0].metrics["accuracy"] == 0.5
    assert all(math.isnan(report.metrics["accuracy"]) for report in server.recorded.reports[1:])
    assert server.recorded.export_done == []


def test_a_crash_ends_the_process_soon_with_the_cause_as_last_words(
    start_server: StartServer, start_script: StartScript
) -> None:
    # A tier is reached and nobody asks for the model: a healthy script would wait for a minute.
    server = start_server(tiers=(0.5,), request_exports=False)
    finished = start_script("faulty", "crash").wait(timeout=50)
    assert finished.returncode == 1
    assert finished.output.splitlines()[-1] == "RuntimeError: the training data is not what it should be"
    assert [report.epoch for report in server.recorded.reports] == [1]


def test_running_out_of_accelerator_memory_ends_with_what_the_limit_was(
    start_server: StartServer, start_script: StartScript
) -> None:
    server = start_server(accelerators=(common_pb2.AcceleratorShare(id="GPU-a", fraction=1.0, memory_bytes=1 << 34),))
    finished = start_script("faulty", "out-of-memory").wait()
    assert finished.returncode == 1
    *_, error, sentence = finished.output.splitlines()
    assert "CUDA out of memory" in error
    assert sentence.startswith("out of accelerator memory: this job may hold 16,384 MiB of accelerator 0; ")
    assert server.recorded.use[-1].memory_bytes == 1 << 30


def test_the_wrong_metric_is_an_error_that_names_both(start_server: StartServer, start_script: StartScript) -> None:
    server = start_server(tiers=(0.8,))
    finished = start_script("faulty", "wrong-metric").wait()
    assert finished.returncode == 1
    assert "MissingMetricError: report() got precision, but this job's tiers are about 'accuracy'" in finished.output
    assert server.recorded.reports == []


def test_a_second_model_is_refused_while_the_first_trains(start_server: StartServer, start_script: StartScript) -> None:
    start_server(tiers=(0.8,))
    finished = start_script("faulty", "twice").wait()
    assert finished.returncode == 1
    assert "ConnectedError: connect() was called before in this run, which trains one model" in finished.output


def test_a_script_that_hangs_is_there_but_says_nothing(start_server: StartServer, start_script: StartScript) -> None:
    server = start_server(tiers=(0.8,))
    script = start_script("faulty", "hang")
    server.wait_until(lambda recorded: recorded.export_done)
    assert script.process.poll() is None
    script.kill()
    assert len(server.recorded.reports) == 1
