"""The load against a server whose answers are known: each counts for the request that it belongs to."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from benchmarks.gpu_check.asking import Answers, add_served, ask
from benchmarks.gpu_check.figures import Asked
from benchmarks.gpu_check.frame import CheckError, Findings, Setting
from benchmarks.gpu_check.load import EvenLoad
from benchmarks.gpu_check.processes import output_of
from benchmarks.gpu_check.workloads import Asking
from benchmarks.serving.bodies import Body
from benchmarks.serving.open_loop import Caller, request_bytes

PATH, BODY = "/v2/models/m/infer", Body(b"body", {"Content-Type": "application/octet-stream"})
REQUEST = request_bytes(PATH, BODY.content, dict(BODY.headers))
GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
BUSY = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\n{}"
RATE = 50.0


class Answering:
    """A server that answers requests with these, in the order in which they come."""

    def __init__(self, answers: list[bytes]) -> None:
        self._left = iter(answers)

    async def __aenter__(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(len(REQUEST)):
            writer.write(next(self._left))
        writer.close()


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting("cpu", quick=True, folder=tmp_path, tell=lambda line: None, facts={})


def asking(requests: int) -> Asking:
    return Asking(RATE, requests / RATE, objective_seconds=60.0)


class Unconnected(EvenLoad):
    """A load without a server."""

    async def _connect(self) -> None:
        pass


class StandInCaller:
    """Has an answer with each of these statuses 10 ms after its request was due, and says so at once."""

    def __init__(self, load: EvenLoad, statuses: list[int]) -> None:
        self._load, self._left = load, iter(statuses)

    def ask(self, due: float) -> None:
        self._load.free.append(cast("Caller", self))
        self._load.answered(next(self._left), due, due, due + 0.01)


async def test_each_delay_is_that_of_its_request_however_late_its_answer_is_looked_at() -> None:
    load = Unconnected(0, REQUEST, RATE)
    load.free.append(cast("Caller", StandInCaller(load, [429, 200, 200, 429, 200])))
    in_time = pytest.approx(0.01)
    assert await load.ask(5 / RATE) == [None, in_time, in_time, None, in_time]


async def test_requests_without_a_good_answer_have_no_delay(tmp_path: Path) -> None:
    answers = [BUSY, GOOD, GOOD, BUSY, GOOD]
    body = tmp_path / "body"
    body.write_bytes(BODY.content)
    headers = '{"Content-Type": "application/octet-stream"}'
    async with Answering(answers) as port:
        words = (str(port), PATH, str(body), headers, str(RATE), str(len(answers) / RATE))
        told = await output_of("load", *words, seconds=60.0, log=tmp_path / "log")
    assert len(told["delays"]) == len(answers)
    assert told["delays"].count(None) == answers.count(BUSY)


async def test_a_load_makes_rows_with_what_was_not_answered(setting: Setting) -> None:
    async with Answering([GOOD, BUSY, GOOD, GOOD]) as port:
        got = (await ask(port, PATH, BODY, asking(4), setting)).served()
    assert (got.failed, got.windows, got.in_objective) == (1, 1, 0.0)
    findings = Findings()
    add_served(findings, "beside", got, asking(4), with_bar=True)
    assert [row.verdict for row in findings.rows] == ["", "MISSED"]
    assert "1 without an answer" in findings.rows[0].note
    assert findings.figures["beside"]["p99_ms"] is None


def test_what_was_due_after_the_end_of_what_ran_beside_does_not_count() -> None:
    asked = [Asked(number / 10, 0.01 if number < 20 else 9.0) for number in range(40)]
    answers = Answers(100.0, asked, objective_seconds=0.1)
    assert (answers.served().windows, answers.served().in_objective) == (4, 0.5)
    assert (answers.served(until=102.0).windows, answers.served(until=102.0).in_objective) == (2, 1.0)
    assert answers.served(until=90.0).windows == 1


async def test_a_server_that_answers_nothing_well_is_no_measurement(setting: Setting) -> None:
    async with Answering([BUSY] * 3) as port:
        with pytest.raises(CheckError, match="none of 3 requests"):
            await ask(port, PATH, BODY, asking(3), setting)


async def test_a_program_that_fails_is_told_by_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(CheckError, match=r"load failed: .*ValueError"):
        await output_of("load", "too", "few", seconds=60.0, log=tmp_path / "log")
