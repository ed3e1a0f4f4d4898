from __future__ import annotations

import json
from pathlib import Path

import pytest

from tiercel.core.errors import SetupError
from tiercel.serving.main import main, settings_from
from tiercel.serving.process.state import take_lock, write_state


def flags(tmp_path: Path, *more: str) -> list[str]:
    files = ["--state-file", str(tmp_path / "s"), "--lock-file", str(tmp_path / "l")]
    return ["--repository", str(tmp_path), *files, *more]


def test_flags_win_over_the_environment_which_wins_over_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIERCEL_SERVING_HTTP_PORT", "1")
    monkeypatch.setenv("TIERCEL_SERVING_GRPC_PORT", "2")
    settings = settings_from(flags(tmp_path, "--http-port", "3"))
    assert (settings.http_port, settings.grpc_port, settings.host) == (3, 2, "127.0.0.1")


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (["--http-port", "x"], "--http-port"),
        (["--http-port", "70000"], "--http-port"),
        (["--host", "0.0.0.0"], "TLS"),
        (["--host", "::"], "TLS"),
        (["--host", "example.org"], "TLS"),
        (["--repository", "/nowhere"], "not a folder"),
        (["--providers", "gpu"], "--providers: Value error, 'gpu' must be 'auto', or some of cpu, cuda"),
        (["--accelerator-memory", "-1"], "--accelerator-memory"),
    ],
)
def test_impossible_settings_are_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], problem: str
) -> None:
    assert main(flags(tmp_path, *more)) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert "Traceback" not in error


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIERCEL_SERVING_REPOSITORY", raising=False)
    with pytest.raises(SetupError, match=r"--repository: .*--state-file: .*--lock-file"):
        settings_from([])


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_needs_no_permission(tmp_path: Path, host: str) -> None:
    assert settings_from(flags(tmp_path, "--host", host)).is_loopback


def test_remote_needs_a_flag(tmp_path: Path) -> None:
    assert not settings_from(flags(tmp_path, "--host", "0.0.0.0", "--allow-remote")).is_loopback


def test_a_lock_is_held_once_and_free_again_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with take_lock(path):
        with pytest.raises(SetupError, match=r"Another inference server \(pid \d+\) holds"), take_lock(path):
            raise AssertionError("it was held")
        assert int(path.read_text()) > 0
    with take_lock(path):
        pass


def test_a_lock_that_cannot_be_made_says_so(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="cannot be opened"), take_lock(tmp_path / "no" / "lock"):
        raise AssertionError("there is no such folder")


def test_the_state_file_is_whole(tmp_path: Path) -> None:
    write_state(tmp_path / "s", {"http": "127.0.0.1:1", "grpc": "127.0.0.1:2"})
    state = json.loads((tmp_path / "s").read_text())
    assert (state["http"], state["grpc"]) == ("127.0.0.1:1", "127.0.0.1:2")
    assert [path.name for path in tmp_path.iterdir()] == ["s"]
    with pytest.raises(SetupError, match="cannot be written"):
        write_state(tmp_path / "no" / "s", {})


@pytest.mark.parametrize("left_out", ["tls_host", "tls_identity", "tls_authority", "operator_token_file"])
def test_half_a_door_for_other_machines_is_refused(tmp_path: Path, left_out: str) -> None:
    given = {"tls_host": "127.0.0.2", "tls_identity": "i", "tls_authority": "a", "operator_token_file": "t"}
    needed = {"repository": str(tmp_path), "state_file": "s", "lock_file": "l"}
    flags = [
        word
        for name, value in (needed | given).items()
        if name != left_out
        for word in (f"--{name.replace('_', '-')}", value)
    ]
    with pytest.raises(SetupError, match="all of --tls-host"):
        settings_from(flags)
