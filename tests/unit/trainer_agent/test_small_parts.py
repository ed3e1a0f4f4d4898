"""Names, back-off, logs, records and settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tiercel.trainer_agent.connection.stream import DialError, LocalBroker, token_from_file
from tiercel.trainer_agent.disk.names import check_delivery, check_run, is_plain
from tiercel.trainer_agent.errors import DeliveryFailedError, RunFailedError, SetupError
from tiercel.trainer_agent.main import settings_from
from tiercel.trainer_agent.reports.run_log import RunLog
from tiercel.trainer_agent.runs.records import RunRecord, RunRecords
from tiercel.v1 import nodes_pb2

NEEDED = ["--broker", "localhost:1", "--token-file", "token", "--state-dir"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../a", "-a", ".a", "a b", "a\n", "a\x00", "ä", "a" * 129])
def test_names_that_are_no_plain_file_names(name: str) -> None:
    assert not is_plain(name)
    with pytest.raises(RunFailedError, match="run id"):
        check_run(name, "job", "train.py")
    with pytest.raises(DeliveryFailedError):
        check_delivery(name, "endpoint")
    with pytest.raises(DeliveryFailedError):
        check_delivery("job-tier-1", name)


def test_plain_names() -> None:
    check_run("3f2a-1", "3f2a", "train.py")
    check_run("3f2a-1", "3f2a", "")
    check_delivery("3f2a-tier-1", "digits.v2_x-1")
    with pytest.raises(RunFailedError, match="script"):
        check_run("3f2a-1", "3f2a", "../train.py")
    with pytest.raises(DeliveryFailedError, match="lower-case"):
        check_delivery("3f2a-tier-1", "Digits")


def test_a_log_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    written = b"".join(b"%05d\n" % number for number in range(1000))
    log = RunLog(tmp_path / "logs" / "run.log", head_bytes=60, tail_bytes=120)
    for begin in range(0, len(written), 7):
        log.append(written[begin : begin + 7])
    again = RunLog(tmp_path / "logs" / "run.log", head_bytes=60, tail_bytes=120)
    for each in (log, again):
        assert each.size == len(written)
        assert each.read(0, 1000) == (0, written[:60])
        begin, data = each.read(60, 1000)
        assert len(written) - 160 <= begin <= len(written) - 120
        assert data == written[begin : begin + len(data)]
        assert each.tail(3) == "00997\n00998\n00999"
    again.append(b"more\n")
    assert again.read(len(written), 100) == (len(written), b"more\n")
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) <= 60 + 160
    again.remove()
    assert list((tmp_path / "logs").iterdir()) == []


def test_a_line_of_the_agents_own_is_a_line_of_its_own(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "run.log")
    for line in ("[one]", "[two]"):
        log.append_line(line)
    log.append(b"without an end")
    log.append_line("[three]")
    assert log.read(0, 100)[1] == b"[one]\n[two]\nwithout an end\n[three]\n"


def test_a_log_goes_on_where_it_was(tmp_path: Path) -> None:
    first = RunLog(tmp_path / "run.log")
    first.append(b"one\n")
    first.close()
    first.close()
    first.append(b"lost")
    assert first.read(0, 10) == (0, b"")
    second = RunLog(tmp_path / "run.log")
    second.append(b"two\n")
    assert second.read(0, 100) == (0, b"one\ntwo\n")
    second.remove()
    assert not (tmp_path / "run.log").exists()


def test_the_tail_is_the_last_lines(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "run.log")
    log.append(b"".join(b"line %d\n" % number for number in range(50)) + b"\xff")
    assert log.tail(3) == "line 48\nline 49\n\ufffd"


def test_records_survive(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    records = RunRecords(tmp_path / "runs")
    alive = RunRecord("a-1", "a", "process", order={"spec": {"metric": "accuracy"}}, token="secret")
    ended = RunRecord("b-1", "b", "docker", ended=True, exit_code=-9, reason="why", lost=True, cpu_seconds=2.0)
    for record in (alive, ended):
        records.save(record)
    (tmp_path / "runs" / "c-1.json").write_text("{")
    assert RunRecords(tmp_path / "runs").load() == [alive, ended]
    assert "c-1.json" in caplog.text
    records.remove("a-1")
    records.remove("a-1")
    assert records.load() == [ended]
    status = ended.status()
    assert (status.state, status.exit_code, status.reason) == (nodes_pb2.RUN_STATE_EXITED, -9, "why")
    assert not alive.status().HasField("exit_code")


def test_addresses_and_tokens(tmp_path: Path) -> None:
    addresses, token = tmp_path / "addresses.json", tmp_path / "token"
    protected: list[int] = []
    broker = LocalBroker(addresses, protected.append)
    with pytest.raises(DialError, match="does not say where the broker is"):
        broker.address()
    with pytest.raises(DialError, match="cannot be read"):
        token_from_file(token)
    for wrong in ("{", "[]", "{}", '{"nodes": "127.0.0.1:5", "broker_pid": "many"}'):
        addresses.write_text(wrong)
        with pytest.raises(DialError):
            broker.address()
    token.write_text("\n")
    with pytest.raises(DialError, match="no first line"):
        token_from_file(token)
    addresses.write_text(json.dumps({"nodes": "127.0.0.1:5"}))
    token.write_text("secret\nsomething else\n")
    assert broker.address() == "127.0.0.1:5"
    assert token_from_file(token) == "secret"
    assert protected == []


def test_a_broker_on_the_same_machine_is_protected_once_in_each_of_its_lives(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    addresses = tmp_path / "addresses.json"
    protected: list[int] = []

    def protect(pid: int) -> None:
        protected.append(pid)
        if pid == 18:
            raise ProcessLookupError("gone")

    broker = LocalBroker(addresses, protect)
    for pid in ("17", "17", "18", "19"):
        addresses.write_text(json.dumps({"nodes": "127.0.0.1:5", "broker_pid": pid}))
        assert broker.address() == "127.0.0.1:5"
    assert protected == [17, 18, 19]
    assert "process 18, is not protected" in caplog.text


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


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--runtimes", "podman"], "--runtimes: .*'podman' is not a runtime; there are process and docker"),
        (["--node-id", "../x"], "--node-id"),
        (["--http-port", "70000"], "--http-port"),
        (["--cpu-cores", "0"], "--cpu-cores"),
        (["--cpus", "0;1"], "--cpus: .*numbers and ranges like 0,2-3"),
        (["--cpus", "-1"], "--cpus: .*numbers and ranges"),
        (["--accelerators", "all"], "--accelerators: .*'all' names no accelerators; give auto, none, or ids like GPU-"),
        (["--accelerators", "GPU-1,"], "--accelerators: .*names no accelerators"),
        (["--addresses-file", "x"], "either --broker or --addresses-file"),
    ],
)
def test_wrong_settings_name_the_flag(flags: list[str], words: str, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=words):
        settings_from([*NEEDED, str(tmp_path), *flags])


def test_missing_settings_name_the_flag() -> None:
    with pytest.raises(SetupError, match="--state-dir"):
        settings_from(["--broker", "localhost:1", "--token-file", "token"])
