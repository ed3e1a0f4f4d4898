"""Log lines: one line each whatever is in them, without secrets, with ids."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import string
from datetime import datetime
from typing import Any

import pytest

from tiercel.broker.actors.supervisor import Supervisor as BrokerSupervisor
from tiercel.core.logs import MAX_CHARACTERS, JsonLines, TextLines, context_of, redacted
from tiercel.core.tokens import Token
from tiercel.core.trust.join_token import JoinToken
from tiercel.trainer_agent.supervision import Supervisor as AgentSupervisor

HOSTILE = 'evil"\\\n2026-01-01 00:00:00,000 ERROR root: forged\r\x1b[2J\u2028\udc80'


class Written:
    """What a logger has written."""

    def __init__(self, formatter: logging.Formatter) -> None:
        self.stream = io.StringIO()
        handler = logging.StreamHandler(self.stream)
        handler.setFormatter(formatter)
        self.logger = logging.Logger("test")  # noqa: LOG001 - known to nobody else
        self.logger.addHandler(handler)

    def lines(self) -> list[str]:
        return self.stream.getvalue().split("\n")[:-1]

    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines()]


@pytest.fixture
def as_json() -> Written:
    return Written(JsonLines({"node": "n1"}))


def fail(reason: str) -> None:
    raise ValueError(reason)


def log_failure(written: Written, reason: str) -> None:
    try:
        fail(reason)
    except ValueError:
        written.logger.exception("it failed")


def test_a_line_is_an_object_with_time_level_logger_and_message(as_json: Written) -> None:
    as_json.logger.warning("hello %s", "world", extra={"request": "r-1", "unknown": "x"})
    (line,) = as_json.objects()
    assert datetime.fromisoformat(line.pop("time")).tzinfo is not None
    said = {"level": "WARNING", "logger": "test", "message": "hello world"}
    assert line == said | {"node": "n1", "request": "r-1"}


@pytest.mark.parametrize("formatter", [TextLines(), JsonLines({})], ids=["text", "json"])
def test_whatever_is_logged_stays_one_line(formatter: logging.Formatter) -> None:
    written = Written(formatter)
    written.logger.warning("a job called %s", HOSTILE)
    written.logger.warning("x" * 10 * MAX_CHARACTERS)
    first, second = written.lines()
    assert not set(first) - set(string.printable) - {"\t"}
    assert not set(first) & set("\r\x0b\x0c")
    assert len(second) < MAX_CHARACTERS + 200


def test_an_exception_cannot_pretend_to_be_a_line_of_its_own(as_json: Written) -> None:
    text = Written(TextLines())
    log_failure(text, HOSTILE)
    assert all(line.startswith("  ") for line in text.lines()[1:])
    log_failure(as_json, HOSTILE)
    (line,) = as_json.objects()
    assert line["exception"].startswith("Traceback")
    assert "forged" in line["exception"]


@pytest.mark.parametrize("formatter", [TextLines(), JsonLines({})], ids=["text", "json"])
def test_no_secret_is_written(formatter: logging.Formatter) -> None:
    token, join = Token.draw("api"), JoinToken.draw("p" * 43)
    secrets = [token.secret, join.secret, "opaque-secret.word", "pass-word"]
    said = f"{token.to_text()} {join.to_text()} Authorization: bearer {secrets[2]} at s3://user:{secrets[3]}@host/x"
    written = Written(formatter)
    written.logger.error("refused: %s", said, extra={"request": said})
    log_failure(written, said)
    output = written.stream.getvalue()
    assert not [secret for secret in secrets if secret in output]
    assert token.id in output
    assert "s3://user:***@host/x" in output


def test_what_is_no_secret_is_written_as_it_is() -> None:
    for text in ("http://127.0.0.1:8000/v2", "host:port", "see tcl_api_ tokens", "a@b.example"):
        assert redacted(text) == text


@pytest.mark.parametrize(
    ("task", "ids"),
    [
        ("run demo-7f-2", {"run": "demo-7f-2", "job": "demo-7f"}),
        ("delivery demo-7f-tier-1", {"delivery": "demo-7f-tier-1", "job": "demo-7f"}),
        ("endpoint digits", {"endpoint": "digits"}),
        ("journal", {}),
    ],
)
async def test_lines_of_a_task_and_of_those_that_it_starts_name_what_it_is_about(
    task: str, ids: dict[str, str], as_json: Written
) -> None:
    async def work() -> None:
        await asyncio.create_task(say())

    async def say() -> None:
        as_json.logger.info("at work")

    async with AgentSupervisor() as tasks:
        tasks.start(task, work())
    async with BrokerSupervisor() as supervisor:
        await supervisor.shield(work(), name=task)
    as_json.logger.info("elsewhere")
    *lines, last = as_json.objects()
    assert len(lines) == 2
    for line in lines:
        assert {name: value for name, value in line.items() if name in {"job", "run", "delivery", "endpoint"}} == ids
    assert not {"job", "run"} & last.keys()


def test_a_name_inside_another_is_the_newest() -> None:
    written = Written(JsonLines({}))
    context_of("node n1").run(lambda: context_of("job j").run(written.logger.info, "x"))
    (line,) = written.objects()
    assert (line["node"], line["job"]) == ("n1", "j")
