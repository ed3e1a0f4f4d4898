"""What is run beside the broker, and what trains on a push, names options, settings, ports and files that there are."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from testing.command_line import understood
from testing.free_ports import free_port
from testing.needs import need
from testing.serving_process import wait_for
from tiercel.broker.settings import BrokerSettings
from tiercel.trainer_agent.settings import AgentSettings

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "deploy"
# Of the Compose Specification what the file uses.
SERVICE_KEYS = {
    *("cap_drop", "command", "env_file", "environment", "image", "network_mode", "restart", "security_opt"),
    *("user", "volumes"),
}


def services() -> dict[str, Any]:
    content = yaml.safe_load((DEPLOY / "monitoring" / "compose.yaml").read_text())
    assert set(content) == {"services", "volumes"}
    found: dict[str, Any] = content["services"]
    return found


def test_services_have_no_rights_and_all_files_that_they_are_given_are_there() -> None:
    assert list(services()) == ["broker", "mosquitto", "prometheus", "grafana"]
    for name, service in services().items():
        assert set(service) <= SERVICE_KEYS
        if name != "broker":
            assert (service["network_mode"], service["cap_drop"], service["image"].count(":")) == ("host", ["ALL"], 1)
        sources = [volume.split(":")[0] for volume in service["volumes"]]
        assert [source for source in sources if source.startswith(".") and not (DEPLOY / source).is_file()] == []


def test_the_broker_is_told_settings_that_there_are_and_asked_at_the_ports_that_it_has() -> None:
    environment = services()["broker"]["environment"]
    known = {f"TIERCEL_{name.upper()}" for name in BrokerSettings.model_fields}
    known |= {f"TIERCEL_AGENT_{name.upper()}" for name in AgentSettings.model_fields}
    assert set(environment) <= known
    assert f"listener {environment['TIERCEL_MQTT_URL'].split(':')[-1]} 127.0.0.1" in (
        (DEPLOY / "monitoring" / "mosquitto.conf").read_text().splitlines()
    )
    command = yaml.safe_load((DEPLOY / "compose-broker.yaml").read_text())["services"]["broker"]["command"]
    ports = dict(word.removeprefix("--").split("=") for word in command if "-port=" in word)
    scraped = yaml.safe_load((DEPLOY / "monitoring" / "prometheus.yml").read_text())["scrape_configs"]
    assert {each["job_name"]: each["static_configs"][0]["targets"] for each in scraped} == {
        "broker": [f"127.0.0.1:{ports['dashboard-port']}"],
        "serving": [f"127.0.0.1:{ports['http-port']}"],
        "agent": [environment["TIERCEL_AGENT_METRICS_LISTEN"]],
    }


def test_prometheus_takes_its_file(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    need(promtool, "Prometheus' promtool", "prometheus")
    assert promtool is not None
    token = tmp_path / "token"
    token.write_text("a token")
    text = (DEPLOY / "monitoring" / "prometheus.yml").read_text()
    assert "/etc/prometheus/tiercel.token" in text
    copy = tmp_path / "prometheus.yml"
    copy.write_text(text.replace("/etc/prometheus/tiercel.token", str(token)))
    done = subprocess.run([promtool, "check", "config", str(copy)], check=False, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_starts_with_its_command(tmp_path: Path) -> None:
    program = shutil.which("prometheus")
    need(program, "Prometheus", "prometheus")
    assert program is not None
    (tmp_path / "prometheus.yml").write_text("scrape_configs: []\n")
    (tmp_path / "data").mkdir()
    port = free_port()
    given = {
        "--config.file": tmp_path / "prometheus.yml",
        "--storage.tsdb.path": tmp_path / "data",
        "--web.listen-address": f"127.0.0.1:{port}",
    }
    options = [word.split("=") for word in services()["prometheus"]["command"]]
    assert given.keys() <= {name for name, _ in options}
    command = [program, *(f"{name}={given.get(name, value)}" for name, value in options)]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            wait_for(lambda: is_ready(port) or process.poll() is not None, "Prometheus")
            assert process.poll() is None, (tmp_path / "log").read_text()
        finally:
            process.terminate()


def is_ready(port: int) -> bool:
    """Whether Prometheus answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_what_operators_type_for_it_is_understood() -> None:
    text = (REPOSITORY / "docs" / "operations.md").read_text()
    lines = re.findall(
        r"^\$run (?:exec -T broker tiercel|run --rm --volume \S+ broker) (.*?)(?: > .*)?$", text, re.MULTILINE
    )
    assert len(lines) == 2
    assert all(understood(shlex.split(line)) for line in lines)


def test_the_workflow_that_trains_on_a_push_runs_commands_that_there_are_on_a_project_that_there_is() -> None:
    workflow = yaml.safe_load((REPOSITORY / "examples" / "ci" / "train.yml").read_text())
    assert workflow["permissions"] == {"contents": "read"}
    job = workflow["jobs"]["train"]
    steps = [step for step in job["steps"] if "run" in step]
    lines = [line.strip() for step in steps for line in step["run"].splitlines()]
    commands = [shlex.split(line.split(" 2>&1")[0])[1:] for line in lines if line.startswith("tiercel ")]
    assert [words[0] for words in commands] == ["submit", "models"]
    for words in commands:
        assert understood(words)
        assert words[words.index("--broker") + 1] == "$BROKER"
    # A pipe has the exit code of its first command only so.
    assert "--wait" in commands[0]
    assert steps[0]["shell"] == "bash"
    assert (REPOSITORY / "examples" / commands[0][1] / "tiercel.yaml").exists()
    # A secret in a command line can be read by others on that machine.
    assert all("secrets." not in line for line in lines)
    assert set(job["env"]) == {"TIERCEL_TOKEN", "TIERCEL_BROKER_PIN", "BROKER"}
