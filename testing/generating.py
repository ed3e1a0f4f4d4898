"""A real server that generates, and its callers."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testing.serving_process import DEADLINE, ServingProcess

if TYPE_CHECKING:
    from testing.small_gpt import SmallGpt

VOCABULARY = 61
CONTEXT = 1024
LENGTHS = (1, 6, 11, 16, 21, 26, 400)  # the last one is read in pieces
PROMPTS = [[(3 * row + 7 * place) % VOCABULARY for place in range(length)] for row, length in enumerate(LENGTHS)]
LONG = {"input_ids": [1, 2, 3], "max_tokens": 1000}


# PyTorch is imported where one worker needs it, and not where all of them collect the tests.
def small_gpt(seed: int = 0, **sizes: int) -> SmallGpt:
    """One with random weights; see :mod:`testing.small_gpt`."""
    from testing import small_gpt as models

    return models.small_gpt(seed, **sizes)


def greedy(model: SmallGpt, prompt: Sequence[int], count: int) -> list[int]:
    """What plain PyTorch answers."""
    from testing import small_gpt as models

    return models.greedy(model, prompt, count)


def decoder(model: SmallGpt, **more: Any) -> bytes:
    """The file that a server generates with."""
    from tiercel.trainer.generation import export_decoder

    return export_decoder(model, **({"context_length": CONTEXT} | more)).onnx


def exported(seed: int, **more: Any) -> tuple[SmallGpt, bytes]:
    model = small_gpt(seed, context=CONTEXT, vocabulary=more.get("vocabulary", VOCABULARY))
    return model, decoder(model, **({"vocabulary": VOCABULARY} | more))


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
