"""What a standard client says of a server: ``python triton_calls.py http|grpc ADDRESS`` prints JSON.

A program of its own, since ``tritonclient.grpc`` and our generated modules register the same messages and one process
cannot hold both.
"""

from __future__ import annotations

import importlib
import json
import queue
import sys
from collections.abc import Callable
from typing import Any

import numpy as np


def calls(kind: str, address: str) -> dict[str, Any]:
    """Ask a server with the models ``plus`` (version 3), ``words`` and ``bad``."""
    triton = importlib.import_module(f"tritonclient.{kind}")
    errors = importlib.import_module("tritonclient.utils")
    client = triton.InferenceServerClient(address)
    said: dict[str, Any] = {
        "live": client.is_server_live(),
        "ready": client.is_server_ready(),
        "model_ready": [
            client.is_model_ready("plus"),
            client.is_model_ready("plus", "2"),
            client.is_model_ready("bad"),
        ],
    }
    as_json = {"as_json": True} if kind == "grpc" else {}
    said["server"] = client.get_server_metadata(**as_json)["name"]
    said["metadata"] = client.get_model_metadata("plus", **as_json)
    index = client.get_model_repository_index(**as_json)
    said["index"] = sorted((line["name"], line["state"]) for line in (index["models"] if kind == "grpc" else index))
    said["infer"] = infer(triton, client)
    said["packed"] = [packed(triton, client, kind, coding) for coding in ("gzip", "deflate")]
    said["words"] = words(triton, client)
    if kind == "grpc":
        said["stream"] = stream(triton, client)
    if kind == "http":
        said["json"] = infer(triton, client, binary_data=False)
    said["statistics"] = client.get_inference_statistics("plus", **as_json)["model_stats"][0]
    said["all_statistics"] = sorted(line["name"] for line in client.get_inference_statistics(**as_json)["model_stats"])
    config = client.get_model_config("plus", **as_json)
    said["config"] = config["config"] if kind == "grpc" else config
    said["classes"] = classes(triton, client)
    said["errors"] = []
    attempts: list[Callable[[], Any]] = [
        lambda: infer(triton, client, model="nobody"),
        lambda: infer(triton, client, shape=(1, 3)),
        lambda: client.load_model("bad"),
    ]
    for attempt in attempts:
        try:
            attempt()
        except errors.InferenceServerException as error:
            said["errors"].append([error.status(), error.message()])
    client.unload_model("plus")
    said["unloaded"] = client.is_model_ready("plus")
    client.load_model("plus")
    said["loaded"] = client.is_model_ready("plus")
    client.close()
    return said


def infer(triton: Any, client: Any, model: str = "plus", shape: tuple[int, ...] = (2, 4), **data: bool) -> Any:
    """One inference: version, id and values."""
    value = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    tensor = triton.InferInput("x", list(shape), "FP32")
    tensor.set_data_from_numpy(value, **data)
    outputs = [triton.InferRequestedOutput("y", **data)] if data else None
    result = client.infer(model, [tensor], request_id="7", outputs=outputs)
    answer = result.get_response()
    as_dict = isinstance(answer, dict)
    version = answer["model_version"] if as_dict else answer.model_version
    return [version, answer["id"] if as_dict else answer.id, result.as_numpy("y").tolist()]


def classes(triton: Any, client: Any) -> list[list[str]]:
    """The largest two values of each row."""
    tensor = triton.InferInput("x", [2, 4], "FP32")
    tensor.set_data_from_numpy(np.array([[1, 3, 2, 0], [9, 8, 7, 6]], np.float32))
    result = client.infer("plus", [tensor], outputs=[triton.InferRequestedOutput("y", class_count=2)])
    return [[each.decode() for each in row] for row in result.as_numpy("y")]


def stream(triton: Any, client: Any) -> Any:
    """Three inferences on one stream, of which the second is wrong: ids and values, or messages."""
    answers: queue.Queue[Any] = queue.Queue()
    client.start_stream(callback=lambda result, error: answers.put((result, error)))
    for number, model in enumerate(("plus", "nobody", "plus")):
        tensor = triton.InferInput("x", [1, 4], "FP32")
        tensor.set_data_from_numpy(np.full((1, 4), number, np.float32))
        client.async_stream_infer(model, [tensor], request_id=str(number))
    found = [answers.get(timeout=90) for _ in range(3)]
    client.stop_stream()
    return sorted(
        [result.get_response().id, result.as_numpy("y").tolist()] if error is None else ["error", error.message()]
        for result, error in found
    )


def packed(triton: Any, client: Any, kind: str, coding: str) -> bool:
    """Whether a large inference, packed as far as the client can ask for it, is answered with the right values."""
    value = np.arange(4 * 4096, dtype=np.float32).reshape(4096, 4)
    tensor = triton.InferInput("x", [4096, 4], "FP32")
    tensor.set_data_from_numpy(value)
    if kind == "grpc":
        asked = {"compression_algorithm": coding}
    else:
        asked = {"request_compression_algorithm": coding, "response_compression_algorithm": coding}
    result = client.infer("plus", [tensor], **asked)
    return bool((result.as_numpy("y") == value + 3).all())


def words(triton: Any, client: Any) -> list[str]:
    """One inference with strings."""
    tensor = triton.InferInput("x", [2], "BYTES")
    tensor.set_data_from_numpy(np.array(["a", "é"], np.object_))
    return [each.decode() for each in client.infer("words", [tensor]).as_numpy("y")]


if __name__ == "__main__":
    print(json.dumps(calls(sys.argv[1], sys.argv[2])))
