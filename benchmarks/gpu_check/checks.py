"""The checks in their order, and what each needs."""

from __future__ import annotations

from types import MappingProxyType

from benchmarks.gpu_check.frame import Check

_TRAINING = {"torch": "torch", "numpy": "numpy"}
_PROTOCOL = {"google.protobuf": "protobuf"}
_SERVING = {
    "psutil": "psutil",
    "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking",
    "grpc_reflection": "grpcio-reflection",
    "onnx": "onnx",
    "onnxruntime": "onnxruntime-gpu",
    "httptools": "httptools",
    "ml_dtypes": "ml_dtypes",
    "orjson": "orjson",
    "prometheus_client": "prometheus-client",
    "pydantic": "pydantic",
    "pydantic_settings": "pydantic-settings",
    "simdjson": "pysimdjson",
    "uvloop": "uvloop",
}
_PRODUCT = {
    "aiodocker": "aiodocker",
    "aiohttp": "aiohttp",
    "aiomqtt": "aiomqtt",
    "aiosqlite": "aiosqlite",
    "alembic": "alembic",
    "click": "click",
    "rich": "rich",
    "sqlalchemy": "sqlalchemy",
    "yaml": "pyyaml",
}

CHECKS = (
    Check("see", "the devices, as the node's agent sees them", 15, MappingProxyType({})),
    Check("pacing", "a training held to shares of a device's time", 105, MappingProxyType(_TRAINING)),
    Check("memory", "a process that wants more memory than granted", 40, MappingProxyType(_TRAINING)),
    Check("ranks", "one model trained on two devices", 15, MappingProxyType(_TRAINING | _PROTOCOL)),
    Check(
        "serving",
        "the inference server beside trainings",
        100,
        MappingProxyType(_TRAINING | _PROTOCOL | _SERVING),
    ),
    Check(
        "product",
        "two jobs and a served model together, under fair and utility",
        175,
        MappingProxyType(_TRAINING | _PROTOCOL | _SERVING | _PRODUCT),
    ),
)
