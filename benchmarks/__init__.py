"""Benchmarks: each writes benchmarks/results/NAME.json."""

import tiercel  # noqa: F401 - first, so that ONNX Runtime reports nothing, here and in the servers that are measured
