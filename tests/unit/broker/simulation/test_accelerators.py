"""Accelerators in the simulator, by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from testing.simulation import GIB, scenario, steps
from tiercel.broker.simulation import Scenario, SimulationError, Workload, simulate
from tiercel.broker.simulation.accelerated import accelerated, equipped, with_accelerators
from tiercel.broker.simulation.accelerators import AcceleratorUser, limited_by_accelerators
from tiercel.broker.simulation.presets import mixed_jobs
from tiercel.broker.simulation.trace import TraceError, read_trace
from tiercel.broker.simulation.workload import DrawnJobs
from tiercel.core.jobs import JobState
from tiercel.core.shares import AcceleratorShare

# Start-up of one CPU second, tier 1 after two, tier 2 after three; then it is done.
SMALL = steps(0.5, 0.9)


def on_devices(*jobs: tuple[float, Workload], devices: int = 1, cores: float = 1.0, nodes: int = 1) -> Scenario:
    planned = replace(scenario(*jobs, nodes=nodes, cores=cores), record_usage=True)
    return replace(planned, nodes=tuple(equipped(node, devices) for node in planned.nodes))


def test_a_job_goes_at_the_speed_of_what_it_is_short_of() -> None:
    slow, quick = accelerated(SMALL, 2.0), accelerated(SMALL, 0.5)
    result = simulate(on_devices((0, slow)), "fair")
    (job,) = result.jobs
    # Two seconds of the device for each of the three CPU seconds: half a core is all that it can use.
    assert [tier.reached_seconds for tier in job.tiers] == [4.0, 6.0]
    assert (job.cpu_seconds, job.accelerator_seconds, job.alone_seconds) == (3.0, 6.0, 6.0)
    assert job.usage[0].accelerator == 1.0
    (job,) = simulate(on_devices((0, quick)), "fair").jobs
    assert [tier.reached_seconds for tier in job.tiers] == [2.0, 3.0]
    assert (job.accelerator_seconds, job.alone_seconds) == (1.5, 3.0)
    # It is over half a second after its last tier, when the version answers.
    assert result.accelerator_utilisation == pytest.approx(6.0 / 6.5)


def test_two_jobs_on_a_device_halve_each_other_and_two_devices_do_not() -> None:
    user = accelerated(SMALL, 1.0, memory_bytes=GIB)
    shared = simulate(on_devices((0, user), (0, user), cores=4.0), "fair")
    assert [job.time_to_tier(1) for job in shared.jobs] == [4.0, 4.0]
    apart = simulate(on_devices((0, user), (0, user), cores=4.0, devices=2), "fair")
    assert [job.time_to_tier(1) for job in apart.jobs] == [2.0, 2.0]


def test_what_a_job_that_waits_for_its_device_leaves_of_the_cpu_goes_to_others() -> None:
    result = simulate(on_devices((0, accelerated(SMALL, 4.0)), (0, SMALL)), "fair")
    on_device, beside = result.jobs
    assert on_device.usage[0].cores == pytest.approx(0.25)
    assert beside.usage[0].cores == pytest.approx(0.75)
    assert beside.time_to_tier(1) == pytest.approx(2 / 0.75)
    assert on_device.time_to_tier(1) == pytest.approx(8.0)


def test_a_job_that_needs_a_device_to_itself_waits_for_one() -> None:
    whole = accelerated(SMALL, 1.0)
    first, second = simulate(on_devices((0, whole), (0, whole), cores=4.0), "fair").jobs
    assert first.finished_at == 3.5
    assert second.started_at == 3.0  # its process is gone at its last tier; what it made answers at 3.5 s
    assert {first.state, second.state} == {JobState.COMPLETED}


def test_jobs_that_no_node_has_devices_for_are_refused() -> None:
    with pytest.raises(SimulationError, match="fit on no node"):
        simulate(on_devices((0, accelerated(SMALL, 1.0, devices=2))), "fair")
    with pytest.raises(SimulationError, match="fit on no node"):
        simulate(on_devices((0, accelerated(SMALL, 1.0, memory_bytes=17 * GIB))), "fair")


def test_an_intensity_needs_an_accelerator() -> None:
    with pytest.raises(ValueError, match="needs an accelerator"):
        replace(SMALL, accelerator_intensity=1.0)


def test_without_devices_there_is_no_utilisation() -> None:
    assert math.isnan(simulate(scenario((0, SMALL)), "fair").accelerator_utilisation)


def test_cpu_and_devices_are_divided_in_turns() -> None:
    half = (AcceleratorShare("gpu", 0.5, GIB),)
    users = [AcceleratorUser(0, 2.0, half), AcceleratorUser(1, 0.2, half)]
    # The second one can use a fifth of the device at most: the first one gets the rest of it, 0.8, which is 0.4 cores.
    assert limited_by_accelerators(users, [0.5, 0.5], [1.0, 1.0], 2.0) == pytest.approx([0.4, 1.0])
    # Nobody is held up: nothing changes.
    assert limited_by_accelerators(users[1:], [0.5, 0.5], [1.0, 1.0], 2.0) == [1.0, 1.0]


def test_the_preset_gives_every_node_devices_and_a_part_of_the_kinds_work_for_them() -> None:
    planned = with_accelerators(mixed_jobs(4, 2), 3, part=0.5)
    assert [len(node.accelerators) for node in planned.nodes] == [3, 3]
    assert isinstance(planned.jobs, DrawnJobs)
    users = [kind for kind in planned.jobs.workloads if kind.accelerator_intensity > 0]
    assert len(users) == len(planned.jobs.workloads) // 2
    assert all(kind.resources.accelerators == 1 for kind in users)


def test_a_trace_says_what_jobs_need_of_accelerators(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    header = "submit_seconds,work_cpu_seconds,tiers,accelerators,accelerator_memory_bytes,accelerator_intensity\n"
    path.write_text(header + "0,10,0.9,,,\n1,10,0.9,2,1000,0.5\n2,10,0.9,1,,\n", encoding="utf-8")
    kinds = [job.workload for job in read_trace(path).jobs]
    asked = [(kind.resources.accelerators, kind.resources.accelerator_memory_bytes) for kind in kinds]
    assert asked == [(0, 0), (2, 1000), (1, 0)]
    assert [kind.accelerator_intensity for kind in kinds] == [0.0, 0.5, 1.0]
    for row, words in (("0,10,0.9,1.5,,", "'1.5' is not a whole number"), ("0,10,0.9,,,2", "needs a number of")):
        path.write_text(f"{header}{row}\n", encoding="utf-8")
        with pytest.raises(TraceError, match=words):
            read_trace(path)
