"""REST requests to begin with, and structured mutations of them with the status that each has to get."""

from __future__ import annotations

import functools
import gzip
import random
import struct
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from benchmarks.fuzz.mutation import Case, bent, flip

Json = dict[str, Any]

FEATURES = 4
OK = frozenset({200})
BAD = frozenset({400})
HEADER_LIMIT = 16 * 1024
"""The server's default for a request's line and headers."""

_INFER = b"/v2/models/plus/infer"
_READ_ONLY = (
    b"/v2", b"/v2/health/live", b"/v2/health/ready", b"/v2/models/plus", b"/v2/models/plus/ready",
    b"/v2/models/plus/stats", b"/v2/models/two", b"/v2/usage", b"/metrics",
)  # fmt: skip


def post(target: bytes, body: bytes, headers: Mapping[bytes, bytes] | None = None, length: int | None = None) -> bytes:
    """A POST request; ``length`` is what it says its body has, when that is a lie."""
    more = b"".join(b"%b: %b\r\n" % pair for pair in (headers or {}).items())
    size = len(body) if length is None else length
    return b"POST %b HTTP/1.1\r\nHost: localhost\r\n%bContent-Length: %d\r\n\r\n%b" % (target, more, size, body)


def get(target: bytes, method: bytes = b"GET") -> bytes:
    """A request without a body."""
    return b"%b %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % (method, target)


def infer_json(rows: int = 1) -> Json:
    """A good question to ``plus``, whose x is FP32 [n, 4]."""
    data = [round(0.25 * index, 4) for index in range(rows * FEATURES)]
    return {"id": "a", "inputs": [{"name": "x", "shape": [rows, FEATURES], "datatype": "FP32", "data": data}]}


def infer_binary() -> tuple[bytes, dict[bytes, bytes]]:
    """The same as binary tensors, both ways: the body and its headers."""
    tensor = {"name": "x", "shape": [1, FEATURES], "datatype": "FP32", "parameters": {"binary_data_size": 4 * FEATURES}}
    head = orjson.dumps({"inputs": [tensor], "outputs": [{"name": "y", "parameters": {"binary_data": True}}]})
    return head + struct.pack("<4f", 1, 2, 3, 4), {b"Inference-Header-Content-Length": b"%d" % len(head)}


def _two() -> Json:
    return {
        "inputs": [
            {"name": "a", "shape": [2], "datatype": "FP32", "data": [1.0, 2.0]},
            {"name": "b", "shape": [2], "datatype": "FP32", "data": [1.0, 2.0]},
            {"name": "k", "shape": [], "datatype": "INT64", "data": [7]},
        ],
        "outputs": [{"name": "doubled"}],
    }


def _strings() -> Json:
    return {"inputs": [{"name": "x", "shape": [2], "datatype": "BYTES", "data": ["a", "\u00e4"]}]}


def good_requests() -> list[bytes]:
    """Requests that get 200."""
    binary, headers = infer_binary()
    chunked = orjson.dumps(infer_json())
    wire = b"POST %b HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
    return [
        post(_INFER, orjson.dumps(infer_json())),
        post(_INFER, orjson.dumps(infer_json(3))),
        post(b"/v2/models/plus/versions/1/infer", orjson.dumps(infer_json())),
        post(_INFER, binary, headers),
        post(b"/v2/models/two/infer", orjson.dumps(_two())),
        post(b"/v2/models/text/infer", orjson.dumps(_strings())),
        wire % (_INFER, len(chunked), chunked),
        post(_INFER, orjson.dumps(infer_json() | {"parameters": {"timeout": 1_000_000, "priority": 1}})),
        post(_INFER, gzip.compress(orjson.dumps(infer_json())), {b"Content-Encoding": b"gzip"}),
        post(b"/v2/repository/index", b"{}"),
        *(get(target) for target in _READ_ONLY),
    ]


# Structured mutations: each gives a request and the statuses one of which it has to get.


def _with_input(**fields: object) -> bytes:
    content = infer_json()
    content["inputs"][0].update(fields)
    return post(_INFER, orjson.dumps(content))


def _wrong_type(source: random.Random) -> Case:
    return Case(_with_input(datatype=source.choice(["INT64", "FP64", "BYTES", "FP33", "", None, 7, "BOOL"])), BAD)


def _wrong_shape(source: random.Random) -> Case:
    shapes: list[object] = [
        [2, 4],
        [4],
        [1, 5],
        [-1, 4],
        [1, 4.0],
        [],
        [1, 4, 1],
        [True, 4],
        ["1", 4],
        None,
        4,
        [[1, 4]],
        [2**63, 4],
    ]
    return Case(_with_input(shape=source.choice(shapes)), BAD)


def _wrong_data(source: random.Random) -> Case:
    data: list[object] = [
        [1, 2, 3],
        [1, 2, 3, "4"],
        [1, 2, 3, None],
        [1, 2, 3, True, 5],
        "1234",
        None,
        {},
        [[1, 2], 3, 4],
        [1, 2, 3, {}],
        [[[]]],
    ]
    return Case(_with_input(data=source.choice(data)), BAD)


def _wrong_name(source: random.Random) -> Case:
    return Case(_with_input(name=source.choice(["z", "", "x ", None, 3, "\u0000", "x" * 5000])), BAD)


def _wrong_form(source: random.Random) -> Case:
    content = infer_json()
    changes: list[Json] = [
        {"inputs": None}, {"inputs": {}}, {"inputs": []}, {"inputs": content["inputs"] * 2}, {"inputs": [7]}, {"id": 5},
        {"parameters": []}, {"outputs": 3}, {"outputs": [{"name": "nothing"}]}, {"outputs": [{"name": "y"}] * 2},
        {"parameters": {"timeout": -1}}, {"parameters": {"timeout": "1"}}, {"parameters": {"binary_data_output": 1}},
    ]  # fmt: skip
    return Case(post(_INFER, orjson.dumps(content | source.choice(changes))), BAD)


def _no_json(source: random.Random) -> Case:
    body = orjson.dumps(infer_json())
    bodies = [
        b"",
        b"[]",
        b"null",
        b"7",
        body[: source.randrange(1, len(body))],
        body + b"}",
        b"\xff" + body,
        b"[" * 5000,
    ]
    return Case(post(_INFER, source.choice(bodies)), BAD)


def _wrong_binary(source: random.Random) -> Case:
    body, headers = infer_binary()
    name = b"Inference-Header-Content-Length"
    length = int(headers[name])
    choices = [
        (body[:-1], headers), (body + b"\0", headers), (body[:length], headers), (body, {name: b"%d" % (length - 1)}),
        (body, {name: b"%d" % (length + 4)}), (body, {name: b"-1"}), (body, {name: b"99999"}), (body, {name: b"x"}),
        (body.replace(b":16}", b":15}"), headers), (body.replace(b":16}", b":-4}"), headers), (body, {}),
    ]  # fmt: skip
    return Case(post(_INFER, *source.choice(choices)), BAD)


def _not_there(source: random.Random) -> Case:
    targets = [
        b"/v2/models/none/infer", b"/v2/models/plus/versions/9/infer", b"/v3", b"/", b"/v2/models//infer",
        b"/v2/models/plus/infer/", b"/v2/models/%s/infer" % (b"m" * 3000), b"/v2/models/..%2f..%2fetc/infer",
    ]  # fmt: skip
    return Case(post(source.choice(targets), orjson.dumps(infer_json())), frozenset({404, 400}))


def _wrong_method(source: random.Random) -> Case:
    return Case(get(_INFER, source.choice([b"GET", b"PUT", b"DELETE", b"PATCH"])), frozenset({405}))


def _unknown_coding(source: random.Random) -> Case:
    coding = source.choice([b"br", b"zstd", b"gzip, gzip", b"x"])
    return Case(post(_INFER, orjson.dumps(infer_json()), {b"Content-Encoding": coding}), frozenset({415}))


_PACKED = gzip.compress(orjson.dumps(infer_json()))


def _badly_packed(source: random.Random) -> Case:
    bodies = [orjson.dumps(infer_json()), _PACKED[:-9], _PACKED[:5], b"", _PACKED + b"more", bent(source, _PACKED)]
    statuses = frozenset({400, 200, 413})  # a mutation may leave it whole, or claim a size
    return Case(post(_INFER, source.choice(bodies), {b"Content-Encoding": b"gzip"}), statuses)


@functools.cache
def _large_once_unpacked() -> bytes:
    return gzip.compress(bytes(80 * 2**20))


def _bomb(_: random.Random) -> Case:
    return Case(post(_INFER, _large_once_unpacked(), {b"Content-Encoding": b"gzip"}), frozenset({413}))


def _large_head(source: random.Random) -> Case:
    size = HEADER_LIMIT + source.randrange(1, 4096)
    wires = [get(b"/v2?" + b"q" * size), b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nX: %b\r\n\r\n" % (b"x" * size)]
    return Case(source.choice(wires), frozenset({431}))


def _large_body(_: random.Random) -> Case:
    return Case(post(_INFER, b"", length=2**40), frozenset({413}))


def _no_http(source: random.Random) -> Case:
    wires = [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ]
    return Case(source.choice(wires), frozenset({400, 505}))


_STRUCTURED: tuple[Callable[[random.Random], Case], ...] = (
    _wrong_type, _wrong_shape, _wrong_data, _wrong_name, _wrong_form, _no_json, _wrong_binary, _not_there,
    _wrong_method, _unknown_coding, _large_head, _large_body, _no_http,
)  # fmt: skip
_GOOD = tuple(good_requests())
_PLAIN = (
    post(_INFER, orjson.dumps({"inputs": infer_json()["inputs"]})),
    post(_INFER, orjson.dumps({"inputs": infer_json()["inputs"], "parameters": {"priority": 2}})),
    post(_INFER, orjson.dumps({"id": "7 a", "inputs": infer_json()["inputs"]})),
    post(_INFER, orjson.dumps({"inputs": infer_json()["inputs"], "id": "7 a"})),
    post(_INFER, *infer_binary()),
)
_SLOW = tuple(wire for wire in _GOOD if b"/metrics" in wire or b"/repository/" in wire or b"gzip" in wire)
_QUICK = tuple(wire for wire in _GOOD if wire not in _SLOW)
_SLOW_SHARE = 0.01
"""What reads the disk, unpacks, or writes for people takes a hundred times as long; it gets fewer requests."""

_BOMB_SHARE = 0.01


def rest_case(source: random.Random) -> Case:
    """A request: two of ten follow a good one, one is good, three are wrong in a known way, four are bent blindly."""
    kind = source.randrange(10)
    if kind >= 8:
        return _asked_again(source)
    if kind == 0:
        return Case(_good(source), OK)
    if kind <= 3:
        return _rare(source) if source.random() < _SLOW_SHARE else source.choice(_STRUCTURED)(source)
    return Case(bent(source, _good(source)))


def _asked_again(source: random.Random) -> Case:
    """A connection's last request is recognised by its bytes, which must not be taken for more than they are."""
    before = source.choice(_PLAIN)
    chance = source.random()
    if chance < 0.25:
        return Case(before, OK, before)
    if chance < 0.5:
        return Case(bent(source, before), before=before)
    head, end, body = before.partition(b"\r\n\r\n")
    for _ in range(source.choice((1, 1, 2, 5))):
        body = flip(source, body)
    return Case(head + end + body, OK | BAD, before)


def _rare(source: random.Random) -> Case:
    return _bomb(source) if source.random() < _BOMB_SHARE else _badly_packed(source)


def _good(source: random.Random) -> bytes:
    return source.choice(_SLOW if source.random() < _SLOW_SHARE else _QUICK)
