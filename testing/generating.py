"""A real server that generates, and its callers."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from testing.serving_process import DEADLINE, ServingProcess
from testing.small_gpt import SmallGpt, small_gpt
from tiercel.trainer.generation import export_decoder

VOCABULARY = 61
CONTEXT = 1024
LENGTHS = (1, 6, 11, 16, 21, 26, 400)  # the last one is read in pieces
PROMPTS = [[(3 * row + 7 * place) % VOCABULARY for place in range(length)] for row, length in enumerate(LENGTHS)]
LONG = {"input_ids": [1, 2, 3], "max_tokens": 1000}


def exported(seed: int, **more: Any) -> tuple[SmallGpt, bytes]:
    model = small_gpt(seed, context=CONTEXT, vocabulary=more.get("vocabulary", VOCABULARY))
    return model, export_decoder(model, **({"vocabulary": VOCABULARY, "context_length": CONTEXT} | more)).onnx


@dataclass(frozen=True)
class Served:
    """A server with a decoder, and the decoder."""

    server: ServingProcess
    model: SmallGpt

    def generate(self, body: object, model: str = "gpt", **more: Any) -> Any:
        reply = self.server.request("POST", f"/v2/models/{model}/generate", body, **more)
        assert reply.status == 200, reply.body
        return reply.content

    def refused(self, body: object, model: str = "gpt", how: str = "generate") -> tuple[int, str]:
        reply = self.server.request("POST", f"/v2/models/{model}/{how}", body)
        return reply.status, reply.error

    def rows(self) -> dict[str, float]:
        lines = self.server.request("GET", "/metrics").body.decode().splitlines()
        found = [line for line in lines if line.startswith(("tiercel_generation", "tiercel_generated"))]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in found)}

    def begun(self) -> float:
        return self.rows()['tiercel_generation_rows{state="begun"}']

    def cap(self, cores: float | None) -> None:
        share = {"cpu_weight": 1.0, "cpu_cap_cores": cores}
        assert self.server.request("POST", "/v2/shares", {"models": {"gpt": share}}).status == 200


class Stream:
    """Events as they come."""

    def __init__(self, address: str, body: object, model: str = "gpt") -> None:
        self._connection = http.client.HTTPConnection(address, timeout=DEADLINE)
        self._connection.request("POST", f"/v2/models/{model}/generate_stream", json.dumps(body))
        self.answer = self._connection.getresponse()
        self.status = self.answer.status

    def __iter__(self) -> Iterator[Any]:
        while line := self.answer.readline():
            if line.strip():
                name, _, data = line.partition(b": ")
                assert name == b"data", line
                yield json.loads(data)
        self.leave()

    def leave(self) -> None:
        self.answer.close()
        self._connection.close()
