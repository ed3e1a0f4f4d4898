"""A standard client as a process: ``python triton_client.py {http,grpc} ADDRESS MODEL IMAGES.npy ANSWER.npz``."""

from __future__ import annotations

import importlib
import sys

import numpy as np

protocol, address, model, images_path, answer_path = sys.argv[1:]
triton = importlib.import_module(f"tritonclient.{protocol}")
images = np.load(images_path)
client = triton.InferenceServerClient(address)
assert client.is_server_live()
assert client.is_server_ready()
assert client.is_model_ready(model)
metadata = client.get_model_metadata(model)
if protocol == "http":
    input_name, output_name = metadata["inputs"][0]["name"], metadata["outputs"][0]["name"]
else:
    input_name, output_name = metadata.inputs[0].name, metadata.outputs[0].name
tensor = triton.InferInput(input_name, list(images.shape), "FP32")
tensor.set_data_from_numpy(images)
answer = client.infer(model, [tensor])
about = answer.get_response()
version = about["model_version"] if protocol == "http" else about.model_version
np.savez(answer_path, scores=answer.as_numpy(output_name), version=np.array(version))
client.close()
