"""How fast a Python process can be if it leaves out all that makes a server: ``PORT NAME=model.onnx ...``.

An asyncio protocol, httptools, orjson, and one run of the model for all requests that one turn of the event loop
brought. It trusts every byte, has no limits, deadlines, metrics or versions, and never changes models.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import httptools
import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import orjson
import uvloop

Array = npt.NDArray[np.float32]
_LENGTH = b"inference-header-content-length"
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
_BINARY_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
    b"Inference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n"
)


class Batcher:
    """Runs a model once for all rows of a turn of the event loop."""

    def __init__(self, name: str, path: str) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._name = name
        self._input = self._session.get_inputs()[0].name
        self._output = self._session.get_outputs()[0].name
        self._waiting: list[tuple[Connection, Array, bool]] = []

    def add(self, connection: Connection, row: Array, binary: bool) -> None:
        """Answer this row at the end of the turn."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting.append((connection, row, binary))

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        rows = waiting[0][1] if len(waiting) == 1 else np.concatenate([row for _, row, _ in waiting])
        answers = self._session.run([self._output], {self._input: rows})[0]
        for index, (connection, _, binary) in enumerate(waiting):
            connection.write(self._encoded(answers[index : index + 1], binary))

    def _encoded(self, answer: Array, binary: bool) -> bytes:
        output = {"name": self._output, "datatype": "FP32", "shape": answer.shape}
        content = {"model_name": self._name, "model_version": "1", "outputs": [output]}
        if not binary:
            output["data"] = answer.reshape(-1)
            body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
            return _HEAD % len(body) + body
        output["parameters"] = {"binary_data_size": answer.nbytes}
        head = orjson.dumps(content)
        return _BINARY_HEAD % (len(head), len(head) + answer.nbytes) + head + answer.tobytes()


class Connection(asyncio.Protocol):
    """One connection."""

    def __init__(self, models: dict[bytes, Batcher]) -> None:
        self._models = models
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._head = 0
        self._body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: it is open."""
        self.write = cast("asyncio.Transport", transport).write

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes."""
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        """httptools: the target."""
        self._url, self._head, self._body = url, 0, b""

    def on_header(self, name: bytes, value: bytes) -> None:
        """httptools: a header."""
        if name.lower() == _LENGTH:
            self._head = int(value)

    def on_body(self, body: bytes) -> None:
        """httptools: a part of the body."""
        self._body = self._body + body if self._body else body

    def on_message_complete(self) -> None:
        """httptools: the request is whole."""
        body, head = self._body, self._head
        tensor = orjson.loads(body[:head] if head else body)["inputs"][0]
        if head:
            row = np.frombuffer(body, np.float32, offset=head) if head % 4 == 0 else np.frombuffer(body[head:], "<f4")
        else:
            row = np.array(tensor["data"], np.float32)
        self._models[self._url].add(self, row.reshape(tensor["shape"]), bool(head))


async def _serve(port: int, models: dict[bytes, Batcher]) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Connection(models), "127.0.0.1", port)
    await server.serve_forever()


def main() -> None:
    """Serve until somebody ends it."""
    pairs = [argument.split("=", 1) for argument in sys.argv[2:]]
    models = {b"/v2/models/%b/infer" % name.encode(): Batcher(name, path) for name, path in pairs}
    uvloop.run(_serve(int(sys.argv[1]), models))


if __name__ == "__main__":
    main()
