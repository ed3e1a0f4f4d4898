"""Counts and durations of a model's requests, in the form of Triton's statistics extension."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Duration:
    """How often something happened and how long it took in total, in nanoseconds."""

    count: int = 0
    nanoseconds: int = 0

    def add(self, seconds: float) -> None:
        """Count one that took this long."""
        self.count += 1
        self.nanoseconds += int(seconds * 1e9)

    def as_json(self) -> dict[str, int]:
        """In the extension's form."""
        return {"count": self.count, "ns": self.nanoseconds}


@dataclass(slots=True)
class ModelStatistics:
    """Statistics of one loaded version.

    Attributes:
        success: Answered requests, from submission to answer.
        fail: Failed requests.
        queue: Time requests waited for a thread.
        compute: Time the model ran.
        last_inference: When the last one ended, milliseconds since the Unix epoch.
    """

    success: Duration = field(default_factory=Duration)
    fail: Duration = field(default_factory=Duration)
    queue: Duration = field(default_factory=Duration)
    compute: Duration = field(default_factory=Duration)
    last_inference: int = 0

    def succeeded(self, total: float, compute: float) -> None:
        """Count an answered request that took ``total`` seconds, ``compute`` of them in the model."""
        self.success.add(total)
        self.compute.add(compute)
        self.queue.add(max(0.0, total - compute))
        self.last_inference = int(time.time() * 1000)

    def as_json(self, name: str, version: str) -> dict[str, Any]:
        """In the extension's form."""
        return {
            "name": name,
            "version": version,
            "last_inference": self.last_inference,
            "inference_count": self.success.count,
            "execution_count": self.success.count,
            "inference_stats": {
                "success": self.success.as_json(),
                "fail": self.fail.as_json(),
                "queue": self.queue.as_json(),
                "compute_input": {"count": self.success.count, "ns": 0},
                "compute_infer": self.compute.as_json(),
                "compute_output": {"count": self.success.count, "ns": 0},
            },
            "batch_stats": [],
        }
