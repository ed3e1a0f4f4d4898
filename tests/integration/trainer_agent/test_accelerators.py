"""An agent of its own process that finds a made-up NVML, and what it tells a broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import fake_nvml
from tests.support.fake_nvml import MIB, FakeNvml, a100, h100_in_slices
from tests.support.made_up_gpus import MadeUpGpus
from tests.support.nodes_broker import DEADLINE, ScriptedBroker, agent_process, wanted_run
from tests.support.until import until
from tiercel.v1 import nodes_pb2

SLEEPER = "import os, time\nos.write(1, b'pid %d\\n' % os.getpid())\ntime.sleep(600)"


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeUpGpus:
    """What agents see."""
    return MadeUpGpus(tmp_path / "nvml.json", monkeypatch)


def usage(broker: ScriptedBroker, device: str) -> nodes_pb2.AcceleratorUsage | None:
    """What the last heartbeat says of a device."""
    beats = [message.heartbeat for message in broker.heard.messages if message.HasField("heartbeat")]
    return next((one for beat in reversed(beats) for one in beat.accelerators if one.id == device), None)


async def eventually(
    broker: ScriptedBroker, device: str, holds: Callable[[nodes_pb2.AcceleratorUsage], object]
) -> None:
    """Wait until something holds of what heartbeats say of a device."""
    await until(lambda: (told := usage(broker, device)) is not None and holds(told), seconds=DEADLINE)


async def test_devices_are_told_at_first_and_how_they_are_from_time_to_time(
    broker: ScriptedBroker, tmp_path: Path, gpus: MadeUpGpus
) -> None:
    card = a100()
    library = FakeNvml(card, h100_in_slices())
    gpus.answer(library)
    with agent_process(tmp_path / "state", broker.address):
        await until(lambda: broker.heard.hellos, seconds=DEADLINE)
        told = broker.heard.hellos[0].accelerators
        assert [one.name for one in told] == [
            "NVIDIA A100-SXM4-40GB",
            "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
            "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        ]
        assert told[0].memory_bytes == (40960 - 571) * MIB
        await eventually(broker, card.uuid, lambda one: one.utilisation == 0.87)
        in_slices = usage(broker, told[2].id)
        assert in_slices is not None
        assert not in_slices.HasField("utilisation")
        card.fault = fake_nvml.GPU_IS_LOST
        gpus.answer(library)
        await eventually(broker, card.uuid, lambda one: "restart the machine" in one.problem)
        assert not usage(broker, told[1].id).problem  # type: ignore[union-attr]  # told with the others


async def test_memory_and_time_are_those_of_the_runs_own_processes(
    broker: ScriptedBroker, tmp_path: Path, gpus: MadeUpGpus
) -> None:
    card = a100()
    library = FakeNvml(card)
    gpus.answer(library)
    with agent_process(tmp_path / "state", broker.address):
        await broker.want(wanted_run("job-1", SLEEPER))
        await until(lambda: broker.heard.output("job-1").endswith(b"\n"), seconds=DEADLINE)
        pid = int(broker.heard.output("job-1").split()[1])
        card.processes[pid] = 700 * MIB
        card.samples = [(pid, 2_000_000, 50), (4321, 2_000_000, 50)]
        gpus.answer(library)

        def last() -> nodes_pb2.RunUsage | None:
            beats = [message.heartbeat for message in broker.heard.messages if message.HasField("heartbeat")]
            return next((one for beat in reversed(beats) for one in beat.runs if one.run_id == "job-1"), None)

        await until(lambda: (used := last()) is not None and used.accelerator_seconds > 0, seconds=DEADLINE)
        used = last()
        assert used is not None
        assert used.accelerator_memory_bytes == 700 * MIB
        assert used.accelerator_seconds == pytest.approx(0.5, abs=0.01), "half of the second between two samples"
        await broker.want()
        await until(lambda: broker.heard.exit("job-1"), seconds=DEADLINE)
        assert broker.heard.exit("job-1").accelerator_seconds == used.accelerator_seconds  # type: ignore[union-attr]


async def test_without_a_driver_there_is_none_and_no_more_is_said_about_it(
    broker: ScriptedBroker, tmp_path: Path, gpus: MadeUpGpus
) -> None:
    gpus.answer(FakeNvml(silence=fake_nvml.DRIVER_NOT_LOADED))
    with agent_process(tmp_path / "state", broker.address) as agent:
        await until(lambda: len(broker.heard.messages) > 10, seconds=DEADLINE)
        assert not broker.heard.hellos[0].accelerators
        assert agent.log.read_text().count("no accelerator: NVML says: Driver Not Loaded") == 1


async def test_a_device_that_is_named_and_absent_is_said(
    broker: ScriptedBroker, tmp_path: Path, gpus: MadeUpGpus
) -> None:
    gpus.answer(FakeNvml(a100()))
    with agent_process(tmp_path / "state", broker.address, "--accelerators", "GPU-none") as agent:
        assert await agent.wait() == 2
        assert "GPU-none is not there; the driver shows GPU-5a6b1f0c" in agent.log.read_text()


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a driver here")
async def test_the_real_library_finds_none_here(broker: ScriptedBroker, tmp_path: Path) -> None:
    with agent_process(tmp_path / "state", broker.address) as agent:
        await until(lambda: broker.heard.hellos, seconds=DEADLINE)
        assert agent.log.read_text().count("no accelerator: NVML says: ") == 1
