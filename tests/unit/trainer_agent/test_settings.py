"""Settings of the agent, from flags and from the environment."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tiercel.broker.trust.authority import Authority
from tiercel.core.errors import SetupError
from tiercel.core.trust.certificates import Identity, key_to_pem, make_key, to_pem
from tiercel.trainer_agent.main import _serving_door, settings_from
from tiercel.trainer_agent.metrics.door import MetricsPlace
from tiercel.trainer_agent.settings import AgentSettings

NEEDED = ["--broker", "localhost:1", "--token-file", "token", "--state-dir"]


def test_settings_come_from_flags_and_else_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIERCEL_AGENT_NODE_ID", "from-environment")
    monkeypatch.setenv("TIERCEL_AGENT_CPU_CORES", "1.5")
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/x.sock")
    settings = settings_from([*NEEDED, str(tmp_path), "--runtimes", "docker, process", "--cpu-cores", "3"])
    assert settings.node_id == "from-environment"
    assert settings.cpu_cores == 3.0
    assert settings.runtimes == ("docker", "process")
    assert settings.docker_host == "unix:///run/x.sock"
    assert settings.http_port == settings.grpc_port == 0


def test_agents_of_one_node_id_but_two_state_directories_do_not_mix(tmp_path: Path) -> None:
    one, two = (settings_from([*NEEDED, str(tmp_path / name), "--node-id", "box.example"]) for name in "ab")
    assert one.instance != two.instance
    assert one.instance.startswith("box-example-")


@pytest.mark.parametrize(
    ("text", "cpus"), [("0", {0}), ("0,1", {0, 1}), ("1, 4-6", {1, 4, 5, 6}), ("3-3", {3}), ("", set())]
)
def test_processors_are_listed_as_for_taskset(text: str, cpus: set[int], tmp_path: Path) -> None:
    assert settings_from([*NEEDED, str(tmp_path), "--cpus", text]).cpus == cpus


@pytest.mark.parametrize(
    ("text", "read"), [("auto", "auto"), ("none", "none"), ("GPU-5a6b-7c1e, MIG-7d0a-11", "GPU-5a6b-7c1e,MIG-7d0a-11")]
)
def test_accelerators_are_named_as_their_driver_does(text: str, read: str, tmp_path: Path) -> None:
    assert settings_from([*NEEDED, str(tmp_path), "--accelerators", text]).accelerators == read


def test_sources_of_data_are_listed_with_commas(tmp_path: Path) -> None:
    settings = settings_from([*NEEDED, str(tmp_path), "--data-sources", "file:///mnt/a, s3://team/"])
    assert settings.data_sources == ("file:///mnt/a", "s3://team/")
    assert settings_from([*NEEDED, str(tmp_path)]).data_sources == ()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--runtimes", "podman"], "--runtimes: .*'podman' is not a runtime; there are process and docker"),
        (["--node-id", "../x"], "--node-id"),
        (["--listen-names", "*"], r"--listen-names: .*'\*' is not the name of a host"),
        (["--listen-names", "lab.example:80"], "--listen-names: .*without ports"),
        (["--data-sources", "/mnt"], "--data-sources: .*'/mnt' is no URL to trust"),
        (["--data-cache-bytes", "0"], "--data-cache-bytes"),
        (["--http-port", "70000"], "--http-port"),
        (["--cpu-cores", "0"], "--cpu-cores"),
        (["--cpus", "0;1"], "--cpus: .*numbers and ranges like 0,2-3"),
        (["--cpus", "-1"], "--cpus: .*numbers and ranges"),
        (["--accelerators", "all"], "--accelerators: .*'all' names no accelerators; give auto, none, or ids like GPU-"),
        (["--accelerators", "GPU-1,"], "--accelerators: .*names no accelerators"),
        (["--label", "ssd"], "--labels: .*'ssd' is no label; give --label KEY=VALUE"),
        (["--label", "a=1", "--label", "a=2"], "one label is given twice"),
        (["--label", "a b=1"], "'a b' is not a label's name"),
        (["--addresses-file", "x"], "either --broker or --addresses-file"),
        (["--metrics-listen", "9464"], "--metrics-listen: '9464' is not HOST:PORT"),
        (["--metrics-listen", "0.0.0.0:9464"], "reached from other machines: give --metrics-token-file and, for TLS"),
        (["--metrics-listen", "10.0.0.5:9464", "--metrics-token-file", "t"], "reached from other machines"),
        (["--metrics-listen", "10.0.0.5:9464", "--serving-identity-file", "i"], "reached from other machines"),
    ],
)
def test_wrong_settings_name_the_flag(flags: list[str], words: str, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=words):
        settings_from([*NEEDED, str(tmp_path), *flags])


def test_metrics_are_for_this_machine_or_for_who_has_a_token_by_tls(tmp_path: Path) -> None:
    flags = [*NEEDED, str(tmp_path), "--serving-identity-file", "i"]
    assert settings_from(flags).metrics_place is None
    here = settings_from([*flags, "--metrics-listen", "localhost:9464"])
    assert here.metrics_place == MetricsPlace("127.0.0.1", 9464)
    wider = settings_from([*flags, "--metrics-listen", "0.0.0.0:9464", "--metrics-token-file", "t"])
    assert wider.metrics_place == MetricsPlace("0.0.0.0", 9464, Path("t"), Path("i"))


def test_labels_are_flags_or_a_list_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = settings_from([*NEEDED, str(tmp_path), "--label", "disk=ssd", "--label", "room=a=b"]).labels
    assert read == {"disk": "ssd", "room": "a=b"}
    monkeypatch.setenv("TIERCEL_AGENT_LABELS", "disk=ssd, room=cellar")
    assert settings_from([*NEEDED, str(tmp_path)]).labels == {"disk": "ssd", "room": "cellar"}


def test_missing_settings_name_the_flag() -> None:
    with pytest.raises(SetupError, match="--state-dir"):
        settings_from(["--broker", "localhost:1", "--token-file", "token"])


def test_the_inference_server_is_told_the_names_of_its_machine(tmp_path: Path) -> None:
    settings = settings_from([*NEEDED, str(tmp_path), "--listen-names", "lab, lab.example"])
    assert _serving_door(settings) == {"TIERCEL_SERVING_ALLOWED_HOSTS": "lab,lab.example"}
    assert _serving_door(settings_from([*NEEDED, str(tmp_path)])) == {}
    # Those that the broker's operator gave it stand in its certificate, and need not be said again.
    now, key = datetime(2026, 11, 27, tzinfo=UTC), make_key()
    chain = to_pem(Authority.create(now).issue_to_node("n2", key.public_key(), now, ("gpu.example", "lab")))
    (tmp_path / "identity.pem").write_bytes(Identity(key_to_pem(key), chain).to_file())
    joined = ["--broker", "b:1", "--identity-file", str(tmp_path / "identity.pem"), "--state-dir", str(tmp_path)]
    settings = settings_from([*joined, "--listen-names", "lab"])
    assert _serving_door(settings) == {"TIERCEL_SERVING_ALLOWED_HOSTS": "lab,gpu.example"}
    (tmp_path / "identity.pem").unlink()
    assert _serving_door(settings) == {"TIERCEL_SERVING_ALLOWED_HOSTS": "lab"}


def test_every_setting_is_a_flag_that_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        settings_from(["--help"])
    told = " ".join(capsys.readouterr().out.split())
    for name, field in AgentSettings.model_fields.items():
        flag = "label" if name == "labels" else name.replace("_", "-")
        assert f"--{flag} " in told
        assert field.description
