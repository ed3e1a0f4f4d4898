"""What a standard client says when it sends models: ``python triton_uploads.py http|grpc ADDRESS TOKEN FILE FILE``.

A program of its own for the reason that ``triton_calls.py`` gives.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def uploads(kind: str, address: str, token: str, good: bytes, bad: bytes) -> dict[str, Any]:
    """Send a good model, with and without the token, and a bad one after it; ask what is there then."""
    triton = importlib.import_module(f"tritonclient.{kind}")
    errors = importlib.import_module("tritonclient.utils")
    client = triton.InferenceServerClient(address)
    operator = {"authorization": f"Bearer {token}"}
    name = f"sent_by_{kind}"
    said: dict[str, Any] = {"refused": []}
    for files, headers in (({"file:1/model.onnx": good}, None), ({"file:2/model.onnx": bad}, operator)):
        if headers is not None:
            config = json.dumps({"backend": "onnxruntime"})
            client.load_model(name, headers=headers, config=config, files={"file:1/model.onnx": good})
        try:
            client.load_model(name, headers=headers, config="{}", files=files)
        except errors.InferenceServerException as error:
            said["refused"].append([error.status(), error.message()])
    tensor = triton.InferInput("x", [1, 4], "FP32")
    tensor.set_data_from_numpy(np.zeros((1, 4), np.float32))
    said["infer"] = client.infer(name, [tensor]).as_numpy("y").tolist()
    try:
        client.unload_model(name)
    except errors.InferenceServerException as error:
        said["refused"].append([error.status(), error.message()])
    client.unload_model(name, headers=operator, unload_dependents=True)
    said["ready"] = client.is_model_ready(name)
    client.close()
    return said


if __name__ == "__main__":
    _, kind, address, token, good, bad = sys.argv
    print(json.dumps(uploads(kind, address, token, Path(good).read_bytes(), Path(bad).read_bytes())))
