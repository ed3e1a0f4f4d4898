"""Recordings and live runs in the simulator's own format, for ``python -m tiercel.broker.simulation``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.scheduling.arms import ARMS
from benchmarks.scheduling.kinds import KINDS, MEMORY_BYTES
from benchmarks.scheduling.outcome import RunOutcome
from benchmarks.scheduling.recordings import FOLDER, Recording, Recordings
from benchmarks.scheduling.schedules import SCHEDULES
from tiercel.broker.simulation.recordings import FORMAT

PATH = FOLDER.parent / "live-runs.json"
Json = dict[str, Any]


def export(outcomes: Sequence[RunOutcome], recordings: Recordings, cores: int, path: Path = PATH) -> Path:
    """Write what the simulator reads: each kind alone, and the live runs whose policy needs nothing beside its options.

    Args:
        outcomes: Live runs; left out are those under load, on two nodes, incomplete or without recordings, and those
            of arms that know the past or the future.
        recordings: Of each kind alone.
        cores: Of the machine.
        path: The file.
    """
    runs = [run for run in outcomes if _is_plain(run, recordings)]
    document = {
        "format": FORMAT,
        "node": {"cpu_cores": cores},
        "jobs": [_alone(recording) for _, recording in sorted(recordings.runs.items())],
        "runs": [_live(run) for run in runs],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(document, allow_nan=False, separators=(",", ":")) + "\n", encoding="utf-8")
    temporary.replace(path)
    return path


def _is_plain(run: RunOutcome, recordings: Recordings) -> bool:
    arm = ARMS.get(run.arm)
    if SCHEDULES[run.schedule].nodes > 1:
        return False
    if arm is None or arm.knows_past or arm.knows_future or run.served is not None or not run.complete:
        return False
    return all((job.kind, job.training_seed) in recordings.runs for job in run.jobs)


def _alone(recording: Recording) -> Json:
    return {
        "name": _name(recording.kind, recording.training_seed),
        "workload": recording.kind,
        "startup_cpu_seconds": recording.startup_cpu_seconds,
        "curve": [{"cpu_seconds": cpu, "value": value} for cpu, value in recording.curve],
        "tiers": recording.targets,
        "direction": KINDS[recording.kind].direction.value,
        "continue_after_last_tier": True,
        "cpu_cores": 1.0,
        "memory_bytes": MEMORY_BYTES,
    }


def _live(run: RunOutcome) -> Json:
    arm = ARMS[run.arm]
    jobs = [
        {
            "job": _name(job.kind, job.training_seed),
            "arrived_at": max(0.0, job.submitted_seconds),
            "tier_seconds": job.reached_seconds,
        }
        for job in run.jobs
    ]
    options = {name: str(value) for name, value in arm.options.items()}
    return {"name": f"{run.block} {run.arm}", "policy": arm.policy, "options": options, "jobs": jobs}


def _name(kind: str, training_seed: int) -> str:
    return f"{kind}/{training_seed}"
