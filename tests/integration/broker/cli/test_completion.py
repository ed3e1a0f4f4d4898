"""What the shell is offered, asked as bash asks."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from testing import jobs_service as wire
from testing.free_ports import free_port
from testing.jobs_service import TOKEN, Script
from testing.product_use import COMMAND_LINE
from testing.warm_python import lasting_python
from tiercel.broker.cli import completion_file
from tiercel.broker.cli.completion_file import Known, KnownJob
from tiercel.broker.cli.session import Target
from tiercel.v1 import jobs_pb2

DEADLINE_SECONDS = 60.0


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tiercel" / "completion.json"


def offered(*words: str) -> list[str]:
    """What bash is told for the last of these words; nothing else may be said."""
    environment = {
        **os.environ,
        "TIERCEL_TOKEN": TOKEN,
        "_TIERCEL_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("tiercel", *words)),
        "COMP_CWORD": str(len(words)),
    }
    said, _ = lasting_python(COMMAND_LINE).start(("-m", "tiercel"), environment).communicate(60)
    lines = [line for line in said.splitlines() if line]
    assert all(line.startswith("plain,") for line in lines), said
    return [line.removeprefix("plain,") for line in lines]


def test_what_a_broker_knows_is_offered_once_it_was_asked(address: str, script: Script, cache: Path) -> None:
    for job_id, state in (("k1", jobs_pb2.JOB_STATE_COMPLETED), ("k2", jobs_pb2.JOB_STATE_RUNNING)):
        script.jobs[job_id] = wire.job(job_id, state)
    script.jobs["m1"] = wire.job("m1")
    script.endpoints.append(jobs_pb2.Endpoint(name="digits"))

    assert offered("show", "--broker", address, "k") == []
    until = time.monotonic() + DEADLINE_SECONDS
    while not cache.exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert offered("show", "--broker", address, "k") == ["k2", "k1"]
    assert offered("cancel", "--broker", address, "k") == ["k2"]
    assert offered("watch", "--broker", address, "k1", "m") == ["m1"]
    assert offered("infer", "--broker", address, "d") == ["digits"]
    assert offered("endpoints", "delete", "--broker", address, "d") == ["digits"]
    assert offered("models", "rollback", "--broker", address, "d") == ["digits"]
    assert cache.stat().st_mode & 0o077 == 0


def test_commands_and_options_are_offered_without_a_broker(cache: Path) -> None:
    assert offered("pro") == ["proxy"]
    assert offered("node", "data", "r") == ["remove"]
    assert offered("ls", "--act") == ["--active"]
    assert not cache.exists()


def test_without_a_broker_nothing_is_offered_and_nothing_is_said(cache: Path) -> None:
    assert offered("show", "--broker", f"127.0.0.1:{free_port()}", "k") == []
    assert offered("show", "--state-dir", "/nowhere", "k") == []


@pytest.mark.parametrize("content", ["", "[]", '{"default 127.0.0.1:1": {"at": "x"}}', '{"default 127.0.0.1:1": 5}'])
def test_a_damaged_file_is_no_error(cache: Path, content: str) -> None:
    cache.parent.mkdir()
    cache.write_text(content)
    assert offered("show", "--broker", "127.0.0.1:1", "k") == []


def test_the_file_has_few_targets_and_few_words(cache: Path) -> None:
    jobs = tuple(KnownJob(f"j{number}", "running", active=True) for number in range(1000))
    for number in range(40):
        completion_file.keep(Target(None, f"host:{number}", "default"), Known(time.time(), jobs))
    content = json.loads(cache.read_text())
    assert [key.rpartition(":")[2] for key in content] == [str(number) for number in range(24, 40)]
    assert {len(entry["jobs"]) for entry in content.values()} == {200}
    assert not completion_file.read(Target(None, "host:0", "default")).is_fresh
    assert completion_file.read(Target(None, "host:39", "default")).is_fresh
