from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from benchmarks.serving.bodies import DIFFERENT, ID_PLACE, Bodies, bodies_of
from benchmarks.serving.load_tools import wrk
from benchmarks.serving.models import KINDS, Model
from testing.needs import need


@pytest.fixture
def model() -> Model:
    row = np.linspace(-1, 1, 64, dtype=np.float32).reshape(1, 64)
    return Model(KINDS["mlp"], Path("mlp.onnx"), row, row)


def numbers(content: bytes) -> list[float]:
    data: list[float] = json.loads(content)["inputs"][0]["data"]
    return data


def test_other_numbers_are_of_one_length_and_other_widths_are_not(model: Model) -> None:
    same_width, widths = bodies_of(model, Bodies.NUMBERS), bodies_of(model, Bodies.WIDTHS)
    for body in (same_width, widths):
        contents = {body.content, *body.others}
        assert len(contents) == DIFFERENT
        assert all(len(numbers(content)) == 64 for content in contents)
    assert len({len(content) for content in (same_width.content, *same_width.others)}) == 1
    assert len({len(content) for content in widths.others}) > 20


def test_ids_differ_and_numbers_do_not(model: Model) -> None:
    body = bodies_of(model, Bodies.IDS)
    assert ID_PLACE in json.loads(body.content)["id"]
    assert numbers(body.content) == numbers(bodies_of(model, Bodies.SAME).content)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    seen: Counter[bytes]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        server.seen[self.rfile.read(int(self.headers["Content-Length"]))] += 1
        time.sleep(0.005)  # else both ends compute for as long as the tool sends
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def server() -> Iterator[_Server]:
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.seen = Counter()
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.mark.parametrize("bodies", list(Bodies))
def test_what_is_sent_differs_as_it_was_asked_for(
    bodies: Bodies, model: Model, server: _Server, tmp_path: Path
) -> None:
    need(shutil.which("wrk"), "the load tool wrk", "wrk")
    body = bodies_of(model, bodies)
    for _ in range(20):  # a second may be too short for three requests on a busy machine
        server.seen.clear()
        assert wrk(f"http://127.0.0.1:{server.server_port}/", body, 1, 1, tmp_path).failed == 0
        if len(seen := dict(server.seen)) > 2 or bodies is Bodies.SAME:
            break
    assert len(seen) > 2 or bodies is Bodies.SAME
    if bodies is Bodies.SAME:
        assert set(seen) == {body.content}
    elif bodies is Bodies.IDS:
        assert set(seen.values()) == {1}
        assert {len(content) for content in seen} == {len(body.content)}
        assert {tuple(numbers(content)) for content in seen} == {tuple(numbers(body.content))}
    else:
        assert set(seen) <= {body.content, *body.others}
