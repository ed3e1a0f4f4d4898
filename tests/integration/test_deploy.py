"""The systemd units are ones that systemd takes; they, and the compose files, start commands that there are."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import yaml

from testing.command_line import understood
from testing.needs import need
from tiercel.broker.dashboard.metrics import families_of
from tiercel.core.prometheus import process_families
from tiercel.core.status import ClusterStatus
from tiercel.serving.models.registry import Registry
from tiercel.serving.rest.metrics import Metrics
from tiercel.trainer_agent.fence.fence import Fence
from tiercel.trainer_agent.metrics.families import of_accelerators, of_connection, of_deliveries, of_disk, of_runs
from tiercel.trainer_agent.runs.numbers import RunTotals
from tiercel.v1 import disk_pb2

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
PROGRAM = "/opt/tiercel/bin/tiercel"


def service_of(unit: Path) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(unit.read_text())
    return parser["Service"]


def test_there_is_one_for_the_first_machine_and_one_for_the_others() -> None:
    assert [unit.name for unit in UNITS] == ["tiercel-agent.service", "tiercel-broker.service"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_takes_it(unit: Path, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    need(analyze, "systemd's checker of units", "systemd")
    assert analyze is not None
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace(PROGRAM, sys.executable))
    done = subprocess.run([analyze, "verify", str(copy)], check=False, capture_output=True, text=True, timeout=60)
    told = [line for line in done.stderr.splitlines() if unit.name in line]
    assert (done.returncode, told) == (0, []), done.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_its_command_and_options_are_ones_that_there_are(unit: Path) -> None:
    program, *words = shlex.split(service_of(unit)["ExecStart"])
    assert program == PROGRAM
    assert understood(words)


COMPOSE = sorted(DEPLOY.glob("compose-*.yaml"))
# Of the Compose Specification what these files use; a key that is misspelt is ignored by some versions.
SERVICE_KEYS = {
    *("cap_drop", "command", "image", "init", "network_mode", "restart", "security_opt", "shm_size"),
    *("stop_grace_period", "ulimits", "volumes"),
}


def test_there_are_compose_files_for_the_same_machines() -> None:
    assert [file.name for file in COMPOSE] == ["compose-agent.yaml", "compose-broker.yaml"]


@pytest.mark.parametrize("file", COMPOSE, ids=lambda file: file.name)
def test_a_compose_file_runs_a_command_that_there_is_and_keeps_its_state(file: Path) -> None:
    content = yaml.safe_load(file.read_text())
    assert set(content) == {"name", "services", "volumes"}
    ((name, service),) = content["services"].items()
    assert file.name == f"compose-{name}.yaml"
    assert set(service) <= SERVICE_KEYS
    given = {"BROKER": "10.0.0.5:7443", "ADDRESS": "10.0.0.5"}
    words = [re.sub(r"\$\{(\w+):\?[^}]+\}", lambda found: given[found[1]], word) for word in service["command"]]
    assert understood(words)
    assert "$" not in "".join(words)
    # What a container loses when it is made anew is not in the volume.
    (volume,) = service["volumes"]
    source, _, folder = volume.partition(":")
    assert set(content["volumes"]) == {source}
    assert f"--state-dir={folder}" in words
    assert (service["network_mode"], service["init"], service["cap_drop"]) == ("host", True, ["ALL"])


def test_both_compose_files_have_the_same_image_and_unit_files_the_same_options() -> None:
    """Machines are asked at the same ports, whichever of the two they run."""
    services = {file.stem: yaml.safe_load(file.read_text())["services"] for file in COMPOSE}
    plain = [
        {key: value for key, value in next(iter(each.values())).items() if key != "command"}
        for each in services.values()
    ]
    assert plain[0] == plain[1]
    asked = {"--tls-http-port", "--tls-grpc-port"}
    for name, ports in (("broker", asked | {"--listen-port", "--listen-nodes-port"}), ("agent", asked)):
        unit = shlex.split(service_of(DEPLOY / f"tiercel-{name}.service")["ExecStart"])
        for option in ports:
            assert f"{option}={unit[unit.index(option) + 1]}" in services[f"compose-{name}"][name]["command"]


def test_what_operators_type_at_containers_is_understood() -> None:
    text = (DEPLOY.parent / "docs" / "operations.md").read_text()
    lines = re.findall(
        r"^docker compose --file deploy/compose-\w+\.yaml (?:exec broker tiercel|run --rm agent) (.*)$",
        text,
        re.MULTILINE,
    )
    assert len(lines) == 2
    for line in lines:
        assert understood(shlex.split(line))


def test_the_image_has_what_the_package_offers() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    (extras,) = re.findall(r"/source\[([\w,]+)\]", text)
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert (DEPLOY.parent / "constraints.txt").exists()
    assert 'ENTRYPOINT ["tiercel"]' in text


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_it_keeps_what_outlives_a_crash_and_may_make_groups(unit: Path) -> None:
    service = service_of(unit)
    assert (service["KillMode"], service["Delegate"], service["NoNewPrivileges"]) == ("process", "yes", "yes")
    # What is read-only to it would be the control groups, and what is private would be without the accelerators.
    assert "ProtectControlGroups" not in service
    assert "PrivateDevices" not in service
    assert service["User"] != "root"


def numbers_there_are() -> set[str]:
    """Names of samples that broker, agents and inference servers tell Prometheus."""
    of_agent = [
        *of_connection(False, 0, Fence()),
        *of_runs((), RunTotals(), 0),
        *of_deliveries(Counter(), Counter()),
        *of_accelerators((), ()),
        *of_disk((0, 0), disk_pb2.NodeDisk()),
        *process_families(),
    ]
    registry = Registry()
    registry.record("m")
    of_serving = {sample.name for family in Metrics(registry).collect() for sample in family.samples}
    return {family.name for family in [*families_of(ClusterStatus("0.1")), *of_agent]} | of_serving


def test_every_panel_of_the_grafana_dashboard_asks_for_what_there_is(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    need(promtool, "Prometheus' promtool", "prometheus")
    assert promtool is not None
    panels = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    assert {name for expr in asked for name in re.findall(r"(?:tiercel|process|nv)_\w+", expr)} <= numbers_there_are()
    rules = tmp_path / "rules.json"  # which is YAML as well
    named = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(asked)]
    rules.write_text(json.dumps({"groups": [{"name": "panels", "rules": named}]}))
    done = subprocess.run([promtool, "check", "rules", str(rules)], check=False, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
