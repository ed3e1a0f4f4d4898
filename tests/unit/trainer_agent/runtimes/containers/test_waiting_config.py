"""A container that waits is hardened as that of its run would be, has nothing of it, and is given what is missing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tiercel.core.shares import AcceleratorShare
from tiercel.trainer_agent.data.mounts import DataMount
from tiercel.trainer_agent.limits.contract import CpuShare
from tiercel.trainer_agent.runtimes.containers.config import ContainerDefaults, container_config
from tiercel.trainer_agent.runtimes.containers.waiting_config import (
    config_digest,
    limits_of,
    mounts_to_bring,
    order_of,
    waiting_config,
    why_unlike,
)
from tiercel.trainer_agent.runtimes.contract import Launch, Program

DEFAULTS = ContainerDefaults("node", "instance", "image:1", (65532, 65532), "/parent", frozenset({0, 1}))
LAUNCH = Launch(
    run_id="job-7-1",
    job_folder=Path("/state/jobs/job-7"),
    program=Program(script="train.py", arguments=("--rate", "0.1")),
    cpu_cores=2.0,
    memory_bytes=1 << 30,
    share=CpuShare(0.25, 0.5),
    variables={"MINE": "of-the-job"},
    secrets={"KEY": "hunter2"},
    data=(
        DataMount("images", Path("/mnt/images"), is_folder=True),
        DataMount("rows", Path("/mnt/rows.csv"), is_folder=False),
    ),
    scratch=Path("/state/scratch/job-7-1"),
    tenant="acme",
)
CONFIG = container_config(LAUNCH, DEFAULTS)
LIKE = waiting_config(LAUNCH, DEFAULTS, "sha256:1", ["numpy"])


def test_it_is_like_its_run_and_has_nothing_of_it() -> None:
    assert why_unlike(CONFIG, LIKE) == ""
    for word in ("job-7", "of-the-job", "hunter2", "acme", "/mnt", "/state", "train.py", "0.1"):
        assert word not in json.dumps(LIKE), word
    for name in ("ReadonlyRootfs", "CapDrop", "SecurityOpt", "PidsLimit", "OomScoreAdj", "Init", "NetworkMode"):
        assert LIKE["HostConfig"][name] == CONFIG["HostConfig"][name]
    assert LIKE["User"] == CONFIG["User"]


def test_it_is_the_same_for_all_runs_that_it_can_become_and_for_no_others() -> None:
    def digest(launch: Launch, defaults: ContainerDefaults = DEFAULTS, image: str = "sha256:1") -> str:
        return config_digest(waiting_config(launch, defaults, image, ()))

    another = replace(
        LAUNCH, run_id="job-8-1", job_folder=Path("/x"), secrets={}, cpu_cores=1.0, memory_bytes=0, data=()
    )
    assert digest(another) == digest(LAUNCH)
    assert digest(LAUNCH, image="sha256:2") != digest(LAUNCH)
    assert digest(LAUNCH, replace(DEFAULTS, user=(1, 1))) != digest(LAUNCH)


def test_it_has_the_environment_of_its_runs_and_none_that_was_there_before() -> None:
    python = "/state/environments/k/venv/bin/python"
    made = replace(LAUNCH, python=python, environment_key="k", environment_made="1", search_path="/opt/bin")
    config, like = container_config(made, DEFAULTS), waiting_config(made, DEFAULTS, "sha256:1", ["alpha"])
    assert why_unlike(config, like) == ""
    assert {each["place"] for each in mounts_to_bring(config, like)} == {
        "/tiercel",
        "/tiercel-data",
        "/tiercel-scratch",
    }
    assert like["Entrypoint"] == "/tiercel-environment/bin/python"
    (mount,) = (each for each in like["HostConfig"]["Mounts"] if each["Target"] == "/tiercel-environment")
    assert (mount["Source"], mount["ReadOnly"]) == ("/state/environments/k/venv", True)
    order = order_of(made, config, {"Config": {"Env": ["PATH=/opt/bin"]}})
    assert order.environment["PATH"] == "/tiercel-environment/bin:/opt/bin"
    anew = waiting_config(replace(made, environment_made="2"), DEFAULTS, "sha256:1", ["alpha"])
    assert len({config_digest(each) for each in (like, anew, LIKE)}) == 3


def test_it_is_given_what_the_run_would_have_had() -> None:
    brought = mounts_to_bring(CONFIG, LIKE)
    assert brought == [
        {"source": "/state/jobs/job-7", "place": "/tiercel", "below": [], "read_only": False},
        {"source": "/mnt/images", "place": "/tiercel-data", "below": ["images"], "read_only": True},
        {"source": "/mnt/rows.csv", "place": "/tiercel-data", "below": ["rows", "rows.csv"], "read_only": True},
        {"source": "/state/scratch/job-7-1", "place": "/tiercel-scratch", "below": [], "read_only": False},
    ]
    assert limits_of(CONFIG) == {
        "CpuShares": 65536,
        "CpuPeriod": 100_000,
        "CpuQuota": 50_000,
        "Memory": 1 << 30,
        "MemorySwap": 1 << 30,
    }
    unlimited = limits_of(container_config(replace(LAUNCH, memory_bytes=0), DEFAULTS))
    assert unlimited["Memory"] == unlimited["MemorySwap"] >= 1 << 60


def test_the_order_has_the_variables_of_the_image_of_the_job_and_its_secrets() -> None:
    image = {"Config": {"Env": ["PATH=/opt/bin", "LANG=fr_FR", "OF_IMAGE=a=b"]}}
    order = order_of(LAUNCH, CONFIG, image)
    assert order.environment["PATH"] == "/opt/bin"
    assert order.environment["LANG"] == "C.UTF-8"
    assert order.environment["OF_IMAGE"] == "a=b"
    assert order.environment["MINE"] == "of-the-job"
    assert order.environment["KEY"] == "hunter2"
    assert order.environment["OMP_NUM_THREADS"] == "2"
    assert (order.script, order.arguments) == ("/tiercel/program/train.py", ("--rate", "0.1"))
    assert order.working_directory == "/tiercel/work"
    assert "KEY" not in order_of(replace(LAUNCH, secrets={}), CONFIG, {}).environment


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"DeviceRequests": []}, "DeviceRequests"),
        ({"CapDrop": []}, "CapDrop"),
        ({"Mounts": [{"Type": "bind", "Source": "/x", "Target": "/elsewhere"}]}, "/elsewhere"),
        ({"Mounts": [{"Type": "bind", "Source": "/x", "Target": "/tiercel-datax"}]}, "/tiercel-datax"),
    ],
)
def test_what_no_container_that_waits_has_is_named(changed: dict[str, Any], named: str) -> None:
    config = CONFIG | {"HostConfig": CONFIG["HostConfig"] | changed}
    assert why_unlike(config, LIKE) == f"no container that waits has its {named}"


def test_a_run_with_accelerators_is_not_like_it() -> None:
    launch = replace(LAUNCH, accelerators=(AcceleratorShare("GPU-1", 1.0),))
    like = waiting_config(replace(launch, accelerators=()), DEFAULTS, "sha256:1", ())
    assert why_unlike(container_config(launch, DEFAULTS), like)
