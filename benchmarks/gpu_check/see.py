"""The devices of this machine, as the node's agent sees them."""

from __future__ import annotations

import asyncio

from benchmarks.gpu_check.frame import Findings, Row, Setting
from benchmarks.gpu_check.utilisation import accelerators

NONE = "no accelerator"


async def run(setting: Setting, findings: Findings) -> None:
    """Name, memory, utilisation and health of each, and what PyTorch makes of them."""
    about = setting.facts.get("device")
    versions = {name: setting.facts.get(name) or "none" for name in ("torch", "cuda", "driver")}
    findings.figures["versions"] = versions
    seen = f"{about['name']}, {about['memory_bytes'] / 2**30:.1f} GiB" if about else NONE
    note = ", ".join(f"{name} {version}" for name, version in versions.items())
    findings.rows.append(Row("device, as PyTorch sees it", seen, note=note))
    async with accelerators(setting) as found:
        readings = await asyncio.to_thread(found.look)
        findings.figures["devices"] = [
            {
                "name": device.name,
                "memory_bytes": device.memory_bytes,
                "memory_used_bytes": reading.memory_used_bytes,
                "utilisation": reading.utilisation,
                "problem": reading.problem,
            }
            for device, reading in zip(found.listed, readings, strict=True)
        ]
        for number, (device, reading) in enumerate(zip(found.listed, readings, strict=True)):
            note = reading.problem or f"well; {reading.memory_used_bytes / 2**30:.1f} GiB held before the checks"
            size = f"{device.memory_bytes / 2**30:.1f} GiB"
            findings.rows.append(Row(f"device {number}, as the agent sees it", f"{device.name}, {size}", note=note))
        if not found.listed:
            why = "" if setting.device == "cuda" else "none is looked for with --device cpu"
            note = why or "no driver, or nvidia-ml-py is not installed (pip install nvidia-ml-py)"
            findings.rows.append(Row("devices, as the agent sees them", NONE, note=note))
