"""What users get wrong on the command line: one clear error, and nothing is created."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testing.product import Product
from testing.product_use import client_of, tiercel

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

RIGHT = {
    "--module": "tiercel.trainer_agent.workloads.digits_mlp",
    "--endpoint": "digits",
    "--metric": "accuracy",
    "--direction": "max",
    "--tier": "0.7",
}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        pytest.param({"--tier": None}, "tiers", id="no tiers"),
        pytest.param({"--tier": ["0.9", "0.7"]}, r"tiers\[1\]\.target", id="tiers out of order"),
        pytest.param({"--tier": ["0.7", "nan"]}, r"tiers\[1\]\.target", id="a target that is no number"),
        pytest.param({"--direction": "up"}, "direction", id="unknown direction"),
        pytest.param({"--metric": "not a metric"}, "metric", id="impossible metric"),
        pytest.param({"--endpoint": "No/Name"}, "endpoint", id="impossible endpoint"),
        pytest.param({"--module": None, "--script": "missing.py"}, "script", id="missing script"),
        pytest.param({"--module": None}, "script", id="no program"),
        pytest.param({"--cpu-cores": "-1"}, r"resources\.cpu_cores", id="negative cores"),
        pytest.param({"--cpu-cores": "100000"}, r"resources\.cpu_cores", id="more cores than any node has"),
        pytest.param({"--memory": "100TiB"}, r"resources\.memory", id="more memory than any node has"),
        pytest.param({"--runtime": "rocket"}, "runtime", id="unknown runtime"),
        pytest.param({"--runtime": "process", "--image": "python:3.12"}, "image", id="image without containers"),
    ],
)
async def test_a_job_that_cannot_be_is_refused_by_the_fields_name(
    product: Product, changes: dict[str, str | list[str] | None], field: str
) -> None:
    state_dir = product.state_dir
    arguments = [word for flag, values in (RIGHT | changes).items() for word in _words(flag, values)]
    refused = await tiercel("submit", *arguments, state_dir=state_dir, tenant="careless")
    assert refused.exit_code != 0
    assert refused.output == ""
    _check_sentence(refused.errors)
    assert re.search(field, refused.errors), refused.errors
    async with client_of(product, "careless") as client:
        assert await client.list_jobs() == ()
        assert await client.list_endpoints() == ()


@pytest.mark.parametrize("command", ["show", "cancel", "explain", "logs", "watch"])
async def test_an_unknown_job_is_an_error_that_names_it(product: Product, command: str) -> None:
    refused = await tiercel(command, "no-such-job", state_dir=product.state_dir, tenant="careless")
    assert refused.exit_code != 0
    _check_sentence(refused.errors)
    assert "no-such-job" in refused.errors


async def test_an_unknown_tenant_is_an_error_that_names_it(product: Product) -> None:
    refused = await tiercel("ls", state_dir=product.state_dir, tenant="mallory")
    assert refused.exit_code != 0
    _check_sentence(refused.errors)
    assert "mallory" in refused.errors


async def test_a_second_up_in_the_same_folder_says_that_one_runs_already(product: Product) -> None:
    second = await tiercel("up", state_dir=product.state_dir)
    assert second.exit_code == 1
    _check_sentence(second.errors)
    assert str(product.pid) in second.errors
    assert (await tiercel("ls", state_dir=product.state_dir, tenant="careless")).exit_code == 0


@pytest.mark.parametrize(
    ("flag", "address"),
    [
        # The broker's own are in tests/integration/broker/cli/test_up.py, of all but the agent.
        ("--http-port", "serving_http"),
        ("--grpc-port", "serving_grpc"),
    ],
)
async def test_a_port_in_use_is_an_error_that_names_port_and_option(
    product: Product, tmp_path: Path, flag: str, address: str
) -> None:
    port = product.addresses[address].rpartition(":")[2]
    refused = await tiercel("up", flag, port, state_dir=tmp_path / "other")
    assert refused.exit_code == 1
    _check_sentence(refused.errors)
    assert port in refused.errors
    assert flag in refused.errors


async def test_no_broker_is_an_error_that_says_how_to_start_one(tmp_path: Path) -> None:
    refused = await tiercel("ls", state_dir=tmp_path / "nothing")
    assert refused.exit_code == 1
    _check_sentence(refused.errors)
    assert "tiercel up" in refused.errors


def _words(flag: str, values: str | list[str] | None) -> list[str]:
    each = [values] if isinstance(values, str) else values or []
    return [f"{flag}={value}" for value in each]


def _check_sentence(errors: str) -> None:
    """One line for people, no traceback."""
    assert "Traceback" not in errors
    lines = [line for line in errors.splitlines() if line.strip()]
    assert len(lines) == 1, errors
    assert lines[0].startswith("Error: ")
