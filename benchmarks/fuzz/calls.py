"""gRPC calls as HTTP/2 frames to begin with, structured mutations of them, and blind ones of frames and of octets."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence

from benchmarks.fuzz.mutation import Case, bent
from tiercel.inference import open_inference_grpc_pb2 as protocol

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS = 0x1, 0x4
SERVICE = b"/inference.GRPCInferenceService/"
OK, INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED, INTERNAL = 0, 3, 5, 12, 13

Frames = list[bytes]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame (RFC 9113, section 4.1)."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    """A header block of literals without indexing (RFC 7541, section 6.2.2); names and values under 127 octets."""
    return b"".join(b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value for name, value in fields)


def head(method: bytes, *more: tuple[bytes, bytes]) -> bytes:
    """The header block of a call."""
    fields = [
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", SERVICE + method), (b":authority", b"h"),
        (b"content-type", b"application/grpc"), (b"te", b"trailers"), *more,
    ]  # fmt: skip
    return literal(fields)


def message(content: bytes, flag: int = 0, length: int | None = None) -> bytes:
    """A message with its prefix; ``length`` is what the prefix says when that is a lie."""
    return struct.pack(">BI", flag, len(content) if length is None else length) + content


def call(block: bytes, body: bytes, stream: int = 1) -> Frames:
    """The frames of a call."""
    return [frame(HEADERS, END_HEADERS, stream, block), frame(DATA, END_STREAM, stream, body)]


def infer(
    model: str = "plus",
    shape: Sequence[int] = (1, 4),
    datatype: str = "FP32",
    raw: bytes | None = struct.pack("<4f", 1, 2, 3, 4),
    values: Sequence[float] = (),
) -> bytes:
    """A ModelInferRequest as octets."""
    request = protocol.ModelInferRequest(model_name=model, id="a")
    tensor = request.inputs.add(name="x", datatype=datatype, shape=list(shape))
    if raw is not None:
        request.raw_input_contents.append(raw)
    if values:
        tensor.contents.fp32_contents.extend(values)
    return bytes(request.SerializeToString())


def good_calls() -> list[Frames]:
    """Calls that get OK."""
    typed = infer(raw=None, values=(1.0, 2.0, 3.0, 4.0))
    body = message(infer())
    block = head(b"ModelInfer")
    named = protocol.ModelMetadataRequest(name="plus").SerializeToString()
    return [
        call(block, body),
        call(block, message(typed)),
        [frame(HEADERS, 0, 1, block[:20]), frame(CONTINUATION, END_HEADERS, 1, block[20:]), frame(DATA, 1, 1, body)],
        [frame(HEADERS, END_HEADERS, 1, block), frame(DATA, 0, 1, body[:7]), frame(DATA, END_STREAM, 1, body[7:])],
        [frame(PING, 0, 0, b"12345678"), *call(block, body), *call(block, body, 3)],
        call(head(b"ServerLive"), message(b"")),
        call(head(b"ServerReady"), message(b"")),
        call(head(b"ModelReady"), message(named)),
        call(head(b"ModelMetadata"), message(named)),
        call(head(b"ServerMetadata"), message(b"")),
    ]


def connection(frames: Frames) -> bytes:
    """Everything that a client sends on a connection."""
    return PREFACE + frame(SETTINGS, 0, 0) + b"".join(frames)


def _wrong_message(source: random.Random) -> Case:
    contents = [
        infer(shape=(1, 5)), infer(shape=(2, 4)), infer(shape=(-1, 4)), infer(datatype="INT64"), infer(datatype="X"),
        infer(raw=b"123"), infer(raw=b""), infer(raw=None), infer(values=(1.0,)), infer(shape=()),
        infer(raw=None, values=(1.0, 2.0, 3.0)), protocol.ModelInferRequest(model_name="plus").SerializeToString(),
    ]  # fmt: skip
    return _case(call(head(b"ModelInfer"), message(source.choice(contents))), {INVALID_ARGUMENT})


def _not_there(source: random.Random) -> Case:
    content = infer(model=source.choice(["none", "plus ", "m" * 1000]))
    return _case(call(head(b"ModelInfer"), message(content)), {NOT_FOUND, INVALID_ARGUMENT})


def _no_method(source: random.Random) -> Case:
    return _case(call(head(source.choice([b"Nothing", b"modelinfer", b""])), message(infer())), {UNIMPLEMENTED})


def _no_protobuf(source: random.Random) -> Case:
    content = source.choice([b"\xff" * 9, b"\x0a\x7f", b"\x2a\x05abc", infer()[:-3]])
    return _case(call(head(b"ModelInfer"), message(content)), {INVALID_ARGUMENT, INTERNAL})


def _wrong_prefix(source: random.Random) -> Case:
    content = infer()
    bodies = [
        message(content, flag=1), message(content, length=len(content) + 1), message(content, length=1),
        message(content) + message(content), b"", b"\0\0", message(content, length=2**32 - 1), message(content, flag=9),
    ]  # fmt: skip
    return _case(call(head(b"ModelInfer"), source.choice(bodies)), set(range(1, 17)))


def _case(frames: Frames, statuses: set[int]) -> Case:
    return Case(connection(frames), frozenset(statuses))


def _bent_frames(source: random.Random) -> Case:
    """Frames out of order, twice, missing, with other kinds, flags, streams or lengths, or strange ones in between."""
    frames = list(source.choice(_GOOD))
    for _ in range(source.choice((1, 1, 2, 3))):
        place = source.randrange(len(frames)) if frames else 0
        match source.randrange(6):
            case 0:
                source.shuffle(frames)
            case 1 if frames:
                frames.insert(place, frames[place])
            case 2 if frames:
                del frames[place]
            case 3 if frames:
                octets = bytearray(frames[place])
                octets[source.choice((0, 1, 2, 3, 4, 5, 8))] = source.choice((0, 1, 2, 4, 8, 9, 0x20, 0x28, 0xFF))
                frames[place] = bytes(octets)
            case 4:
                frames.insert(place, _strange(source))
            case _ if frames:
                octets_ = frames[place]
                frames[place] = octets_[:9] + bent(source, octets_[9:])
    return Case(connection(frames))


def _strange(source: random.Random) -> bytes:
    kind, flags = source.randrange(12), source.choice((0, 1, 4, 5, 8, 0x2D, 0xFF))
    payload = source.choice((b"", b"\0", b"\0\0\0\0", b"\0\0\0\1", b"\x7f\xff\xff\xff", b"12345678", b"\0\4\0\0\0\0"))
    return frame(kind, flags, source.choice((0, 1, 2, 3, 99)), payload)


_GOOD = tuple(good_calls())
_GOOD_WIRES = tuple(connection(frames) for frames in _GOOD)
_STRUCTURED: tuple[Callable[[random.Random], Case], ...] = (
    _wrong_message, _not_there, _no_method, _no_protobuf, _wrong_prefix,
)  # fmt: skip


def grpc_case(source: random.Random) -> Case:
    """A call: one of eight is good, two are wrong in a known way, three have bent frames, two bent octets."""
    kind = source.randrange(8)
    if kind == 0:
        return Case(source.choice(_GOOD_WIRES), frozenset({OK}))
    if kind <= 2:
        return source.choice(_STRUCTURED)(source)
    if kind <= 5:
        return _bent_frames(source)
    return Case(bent(source, source.choice(_GOOD_WIRES)))
