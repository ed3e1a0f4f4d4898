"""What this Python can do here, found out in a process of its own: ``python -m benchmarks.gpu_check.facts``.

Whoever has asked a driver for its devices may hold memory on them; the checks themselves are to be alone there.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import Any

Json = dict[str, Any]

_SECONDS = 120.0
"""The first import of PyTorch on a machine reads gigabytes."""


def look() -> Json:
    """Facts of this process: ``torch``, ``cuda`` and ``driver``, ``device`` and how many ``devices``, ``providers``."""
    facts: Json = {"torch": "", "cuda": "", "driver": _driver(), "device": None, "devices": 0, "providers": []}
    if importlib.util.find_spec("torch") is None:
        return facts
    import torch

    facts["torch"] = torch.__version__
    if torch.cuda.is_available():
        about = torch.cuda.get_device_properties(0)
        uuid = getattr(about, "uuid", None)
        facts["cuda"] = torch.version.cuda or ""
        facts["devices"] = torch.cuda.device_count()
        facts["device"] = {
            "name": about.name,
            "memory_bytes": about.total_memory,
            "id": f"GPU-{uuid}" if uuid is not None else "",
        }
    if importlib.util.find_spec("onnxruntime") is not None:
        import onnxruntime

        facts["providers"] = list(onnxruntime.get_available_providers())
    return facts


def _driver() -> str:
    if importlib.util.find_spec("pynvml") is None:
        return ""
    import pynvml

    try:
        pynvml.nvmlInit()
        version = str(pynvml.nvmlSystemGetDriverVersion())
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return ""
    return version


def find() -> Json:
    """The facts, from a process of its own; without a device where that process fails."""
    try:
        command = [sys.executable, "-m", "benchmarks.gpu_check.facts"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
        facts: Json = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        told = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        return {"torch": "", "cuda": "", "device": None, "providers": [], "problem": told[-1] if told else "no word"}
    return facts


if __name__ == "__main__":
    print(json.dumps(look()))
