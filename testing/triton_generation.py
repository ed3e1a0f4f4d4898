"""What a standard client hears of generation on a stream: ``python triton_generation.py ADDRESS`` prints JSON.

A program of its own for the reason that :mod:`testing.triton_calls` has.
"""

from __future__ import annotations

import json
import queue
import sys
from typing import Any

import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException


def told(address: str) -> dict[str, Any]:
    """Three requests on one stream, of which the last is wrong: by id what each was answered."""
    answers: queue.Queue[Any] = queue.Queue()
    client = triton.InferenceServerClient(address)
    client.start_stream(callback=lambda result, error: answers.put((result, error)))
    text = triton.InferInput("text_input", [1], "BYTES")
    text.set_data_from_numpy(np.array([b"Hi"], np.object_))
    ids = triton.InferInput("input_ids", [1, 2], "INT64")
    ids.set_data_from_numpy(np.array([[1, 2]], np.int64))
    most = triton.InferInput("max_tokens", [1], "INT32")
    most.set_data_from_numpy(np.array([12], np.int32))
    client.async_stream_infer("text", [text], request_id="text", parameters={"max_tokens": 12})
    client.async_stream_infer("ids", [ids, most], request_id="ids")
    client.async_stream_infer("text", [text], request_id="wrong", parameters={"max_tokens": -1})
    said: dict[str, Any] = {"text": [], "ids": [], "texts": "", "reasons": [], "errors": []}
    ended = 0
    while ended < 3:
        result, error = answers.get(timeout=90)
        if error is not None:
            assert isinstance(error, InferenceServerException)
            said["errors"].append(error.message())
            ended += 1
            continue
        response = result.get_response()
        said[response.id] += result.as_numpy("output_ids").tolist()
        if response.id == "text":
            said["texts"] += result.as_numpy("text_output")[0].decode()
        if response.parameters["triton_final_response"].bool_param:
            said["reasons"].append(response.parameters["finish_reason"].string_param)
            ended += 1
    client.stop_stream()
    client.close()
    return said


if __name__ == "__main__":
    print(json.dumps(told(sys.argv[1])))
