"""The cooperative limit, measured on a real process."""

from __future__ import annotations

import time

import psutil
import pytest

from testing.cpu import judge
from testing.trainer_service import Recorded, StartScript, StartServer, TrainerServer
from tiercel.v1 import common_pb2

WINDOW_SECONDS = 1.5


def cores_used(process: psutil.Process) -> float:
    """Average use over a window."""
    cpu, wall = sum(process.cpu_times()[:2]), time.monotonic()
    time.sleep(WINDOW_SECONDS)  # measuring a rate takes time
    return float(sum(process.cpu_times()[:2]) - cpu) / (time.monotonic() - wall)


def assert_cores(process: psutil.Process, wanted: float) -> None:
    """Check the median use; a busy machine may take away for a while what the limit grants."""
    measured: list[float] = []
    while (verdict := judge(measured, wanted, 0.1 * wanted)) is None:
        measured.append(cores_used(process))
    assert verdict, f"wanted {wanted} cores, measured {measured}"


@pytest.mark.alone
def test_cpu_use_follows_the_pace_while_it_changes(start_server: StartServer, start_script: StartScript) -> None:
    server = start_server()
    script = start_script("linear", "--epochs", "100000", "--step-cpu-seconds", "0.02")
    server.wait_until(lambda recorded: recorded.reports)
    process = psutil.Process(script.process.pid)
    server.request_pace(0.3)
    assert_cores(process, 0.3)
    server.request_pace(0.15)
    assert_cores(process, 0.15)
    reports = len(server.recorded.reports)
    server.request_pace(0)
    server.wait_until(lambda recorded: len(recorded.reports) > reports + 3)
    server.request_stop()
    assert script.wait().returncode == 0


def test_a_run_that_rests_for_long_still_obeys(start_server: StartServer, start_script: StartScript) -> None:
    server = start_server(tiers=(0.5,), request_exports=False)
    script = start_script("linear", "--epochs", "100000", "--step-cpu-seconds", "0.02")
    server.wait_until(lambda recorded: any(report.metrics["accuracy"] >= 0.5 for report in recorded.reports))
    server.request_pace(0.0001)  # a rest of minutes after each step
    server.request_export("while-resting", 0.5)
    server.wait_until(lambda recorded: recorded.export_done)
    server.request_stop()
    assert script.wait().returncode == 0
    assert server.recorded.export_done[0].error == ""


def share_of_step_time(server: TrainerServer, seconds: int) -> float:
    """Part of the time that steps take, as the script counts it, over so many seconds' worth of its messages."""

    def later(recorded: Recorded) -> bool:
        return len(recorded.use) > first + seconds

    first = len(server.recorded.use)
    server.wait_until(lambda recorded: len(recorded.use) > first)
    began, used = time.monotonic(), server.recorded.use[-1].accelerator_seconds
    server.wait_until(later)
    return (server.recorded.use[-1].accelerator_seconds - used) / (time.monotonic() - began)


def assert_share_of_step_time(server: TrainerServer, wanted: float) -> None:
    """Check the median share: what a busy machine delays on the way here evens out."""
    measured: list[float] = []
    while (verdict := judge(measured, wanted, 0.03)) is None:
        measured.append(share_of_step_time(server, 2))
    assert verdict, f"wanted {wanted} of the step time, measured {measured}"


@pytest.mark.alone
def test_step_time_follows_the_fraction_while_it_changes(start_server: StartServer, start_script: StartScript) -> None:
    """Without a device the time of the steps stands in for its time, however long the machine makes them."""
    server = start_server(accelerators=(common_pb2.AcceleratorShare(id="GPU-none", fraction=1.0),))
    script = start_script("linear", "--epochs", "100000", "--step-cpu-seconds", "0.02")
    for fraction in (0.3, 0.6):
        server.wait_until(lambda recorded: recorded.reports)
        server.request_pace(0, accelerator_fraction=fraction)
        assert_share_of_step_time(server, fraction)
    server.request_stop()
    assert script.wait().returncode == 0
