from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tiercel.core.shares import AcceleratorShare
from tiercel.trainer_agent.data.mounts import DataMount
from tiercel.trainer_agent.limits.contract import CpuShare
from tiercel.trainer_agent.runtimes.containers.config import ContainerDefaults, container_config, share_config
from tiercel.trainer_agent.runtimes.containers.secrets import as_shell, own_command
from tiercel.trainer_agent.runtimes.contract import Launch, Program

DEFAULTS = ContainerDefaults("node", "node-1234", "tiercel-trainer:latest", (1000, 1000))
LAUNCH = Launch(
    "job-1", Path("/state/jobs/job"), Program(script="train.py", arguments=("--x", "1")), memory_bytes=1 << 30
)


def test_it_is_hardened() -> None:
    config = container_config(LAUNCH, DEFAULTS)
    host = config["HostConfig"]
    assert config["User"] == "1000:1000"
    assert host["NetworkMode"] == "none"
    assert host["ReadonlyRootfs"] is True
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["PidsLimit"] > 0
    assert host["Memory"] == host["MemorySwap"] == 1 << 30
    assert host["Mounts"] == [{"Type": "bind", "Source": "/state/jobs/job", "Target": "/tiercel"}]
    assert "Binds" not in host
    assert "Privileged" not in host


def test_data_sets_are_mounted_for_reading() -> None:
    data = (DataMount("a-b", Path("/mnt/a"), is_folder=True), DataMount("t", Path("/mnt/t.csv"), is_folder=False))
    config = container_config(replace(LAUNCH, data=data), DEFAULTS)
    _, folder, file = config["HostConfig"]["Mounts"]
    assert folder == {
        "Type": "bind",
        "Source": "/mnt/a",
        "Target": "/tiercel-data/a-b",
        "ReadOnly": True,
        "BindOptions": {"Propagation": "rprivate"},
    }
    assert (file["Source"], file["Target"], file["ReadOnly"]) == ("/mnt/t.csv", "/tiercel-data/t/t.csv", True)
    assert {"TIERCEL_DATA_A_B=/tiercel-data/a-b", "TIERCEL_DATA_T=/tiercel-data/t/t.csv"} <= set(config["Env"])


def test_what_runs() -> None:
    config = container_config(LAUNCH, DEFAULTS)
    assert (config["Entrypoint"], config["Cmd"]) == ("python", ["/tiercel/program/train.py", "--x", "1"])
    assert config["Image"] == "tiercel-trainer:latest"
    assert config["Labels"] == {"tiercel.node": "node", "tiercel.instance": "node-1234", "tiercel.run": "job-1"}
    module = container_config(Launch("job-1", Path("/j"), Program(module="a.b")), DEFAULTS)
    assert (module["Entrypoint"], module["Cmd"]) == ("python", ["-m", "a.b"])


def test_several_ranks_are_started_by_their_parent_and_have_room_for_each() -> None:
    config = container_config(replace(LAUNCH, ranks=4), DEFAULTS)
    start = ["-P", "-m", "tiercel.trainer_agent.runtimes.ranks", "4", "passed-on", "python"]
    assert (config["Entrypoint"], config["Cmd"][:6]) == ("python", start)
    assert config["Cmd"][6:] == ["/tiercel/program/train.py", "--x", "1"]
    alone = container_config(LAUNCH, DEFAULTS)["HostConfig"]
    assert config["HostConfig"]["PidsLimit"] == 4 * alone["PidsLimit"]
    assert config["HostConfig"]["ShmSize"] >= 1 << 30
    assert "ShmSize" not in alone


def test_an_image_may_run_its_own_command() -> None:
    own = container_config(Launch("job-1", Path("/j"), Program(), image="their:1"), DEFAULTS)
    assert own["Image"] == "their:1"
    assert "Entrypoint" not in own
    assert "Cmd" not in own
    assert "Memory" not in own["HostConfig"]
    with_arguments = container_config(Launch("job-1", Path("/j"), Program(arguments=("x",))), DEFAULTS)
    assert "Entrypoint" not in with_arguments
    assert with_arguments["Cmd"] == ["x"]


@pytest.mark.parametrize(("share", "quota"), [(CpuShare(0.5), -1), (CpuShare(0.5, 0.75), 75_000)])
def test_shares(share: CpuShare, quota: int) -> None:
    assert share_config(share) == {"CpuShares": 131_072, "CpuPeriod": 100_000, "CpuQuota": quota}
    launch = Launch("job-1", Path("/j"), Program(), share=share)
    host = container_config(launch, DEFAULTS)["HostConfig"]
    assert share_config(share).items() <= host.items()
    assert "NanoCpus" not in host


def test_a_node_that_is_a_slice_of_a_machine_binds_its_containers_to_it() -> None:
    sliced = replace(DEFAULTS, cpus=frozenset({3, 0}))
    assert container_config(LAUNCH, sliced)["HostConfig"]["CpusetCpus"] == "0,3"
    assert "CpusetCpus" not in container_config(LAUNCH, DEFAULTS)["HostConfig"]


def test_exactly_the_accelerators_that_were_granted_are_asked_of_the_engine() -> None:
    held = (AcceleratorShare("GPU-b", 0.5, 1 << 30), AcceleratorShare("MIG-a", 1.0))
    config = container_config(replace(LAUNCH, accelerators=held), DEFAULTS)
    assert config["HostConfig"]["DeviceRequests"] == [
        {"Driver": "", "DeviceIDs": ["GPU-b", "MIG-a"], "Capabilities": [["gpu"]]}
    ]
    assert "CUDA_VISIBLE_DEVICES=GPU-b,MIG-a" in config["Env"]
    assert not any(variable.startswith("NVIDIA_") for variable in config["Env"])


def test_a_run_that_holds_no_accelerator_asks_for_none_and_sees_none() -> None:
    config = container_config(LAUNCH, DEFAULTS)
    assert "DeviceRequests" not in config["HostConfig"]
    assert {"CUDA_VISIBLE_DEVICES=", "NVIDIA_VISIBLE_DEVICES=void"} <= set(config["Env"])


def test_the_engine_is_told_no_secret() -> None:
    launch = replace(LAUNCH, program=Program(script="train.py"), secrets={"A_KEY": "it's"})
    config = container_config(launch, DEFAULTS)
    assert "it's" not in repr(config)
    assert "A_KEY" not in repr(config)
    assert (config["OpenStdin"], config["StdinOnce"]) == (True, True)
    assert config["Cmd"][-2:] == ["python", "/tiercel/program/train.py"]
    assert "OpenStdin" not in container_config(replace(launch, secrets={}), DEFAULTS)
    assert as_shell(launch.secrets) == b"export A_KEY='it'\"'\"'s'\n"


@pytest.mark.parametrize(
    ("image", "arguments", "command"),
    [
        ({"Config": {"Entrypoint": ["run"], "Cmd": ["a"]}}, (), ("run", "a")),
        ({"Config": {"Entrypoint": ["run"], "Cmd": ["a"]}}, ("b",), ("run", "b")),
        ({"Config": {"Entrypoint": None, "Cmd": ["a", "b"]}}, (), ("a", "b")),
        ({}, (), ()),
    ],
)
def test_the_command_of_an_image(image: dict[str, Any], arguments: tuple[str, ...], command: tuple[str, ...]) -> None:
    assert own_command(image, arguments) == command
