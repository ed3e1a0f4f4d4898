"""What a model is, in the form of Triton's model configuration extension. Pure.

The configuration is found out from the model, not read from ``config.pbtxt``: it says what this server does. What is
read from that file stands in :mod:`tiercel.serving.runtime.model_settings`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tiercel.serving.tensors import TensorSpec

PLATFORM = "onnxruntime_onnx"
BACKEND = "onnxruntime"
ENDPOINT_PLATFORM = "tiercel_variants"
"""What an endpoint with variants is, instead of a file of a model."""


def has_batch_axis(inputs: Iterable[TensorSpec], outputs: Iterable[TensorSpec]) -> bool:
    """Whether every input and output begins with an axis of any size, and there is an input."""
    specs = list(inputs)
    return bool(specs) and all(spec.shape and spec.shape[0] == -1 for spec in (*specs, *outputs))


def model_config(
    name: str,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    *,
    max_batch_size: int,
    instances: int,
    queue_delay: float = 0.0,
    kind: str = "KIND_CPU",
    preferred: Sequence[int] = (),
    has_labels: bool = False,
) -> dict[str, Any]:
    """The configuration as JSON of Triton's ``ModelConfig``.

    Args:
        name: Of the model.
        inputs: Its inputs.
        outputs: Its outputs.
        max_batch_size: Rows of the largest batch; 0 for a model whose requests do not run together. ``dims`` are
            then without the batch axis, as in Triton.
        instances: Threads that may run it at the same time.
        kind: What it runs on, ``KIND_CPU`` or ``KIND_GPU``.
        queue_delay: Seconds for which a request may wait for others.
        preferred: Batch sizes that are worth waiting for, in rows.
        has_labels: Whether classes have labels.
    """
    skipped = 1 if max_batch_size > 0 else 0
    label_file = {"label_filename": "labels.txt"} if has_labels else {}
    config: dict[str, Any] = {
        "name": name,
        "platform": PLATFORM,
        "backend": BACKEND,
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": max_batch_size,
        "input": [_tensor(spec, skipped) for spec in inputs],
        "output": [_tensor(spec, skipped) | label_file for spec in outputs],
        "instance_group": [{"name": name, "kind": kind, "count": instances}],
        "default_model_filename": "model.onnx",
        "model_transaction_policy": {"decoupled": False},
    }
    if max_batch_size > 0:
        microseconds = round(queue_delay * 1e6)
        config["dynamic_batching"] = {
            "preferred_batch_size": list(preferred),
            "max_queue_delay_microseconds": microseconds,
        }
    return config


def _tensor(spec: TensorSpec, skipped: int) -> dict[str, Any]:
    kind = "STRING" if spec.data_type.is_bytes else spec.data_type.name
    return {"name": spec.name, "data_type": f"TYPE_{kind}", "dims": list(spec.shape[skipped:])}
