"""Counts and durations of a model's requests: what Triton's statistics extension and the metrics are made of.

The hot path adds plain numbers to plain attributes; every form in which they are read is made when somebody asks.
All of it is used on the event loop only. Durations are seconds of ``time.perf_counter``.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from tiercel.core.errors import CapacityExceededError, DeadlineExceededError, InferenceFailedError, TiercelError
from tiercel.serving.drift.watch import InputWatch

FAILURE_REASONS = ("REJECTED", "CANCELED", "BACKEND", "OTHER")
"""The words of Triton's metrics for why an inference failed."""

_REASONS: dict[type[TiercelError], str] = {
    CapacityExceededError: "REJECTED",
    DeadlineExceededError: "REJECTED",
    InferenceFailedError: "BACKEND",
}
# Batches of more rows than this are counted together under this size: what is kept has to be bounded.
_MOST_BATCH_SIZES = 512


@dataclass(slots=True)
class ExecutionTimes:
    """How often the model ran with a batch of one size, and the seconds that took in total."""

    count: int = 0  # runs
    compute_input: float = 0.0  # seconds in which inputs were put together
    compute_infer: float = 0.0  # seconds in which the model ran
    compute_output: float = 0.0  # seconds in which outputs were taken apart


@dataclass(slots=True)
class ModelStatistics:
    """Statistics of one version, kept when it is replaced, so that they never fall while the server lives."""

    successes: int = 0  # answered requests
    success_seconds: float = 0.0  # from a request's arrival to its answer, added up over the answered ones
    # Failed requests by reason, one of :data:`FAILURE_REASONS`.
    failures: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FAILURE_REASONS, 0))
    fail_seconds: float = 0.0  # from a request's arrival to its failure, added up
    queue_seconds: float = 0.0  # time in which requests waited, added up over the answered ones
    compute_input_seconds: float = 0.0  # time in which inputs were put together, as each answered request felt it
    # Time in which the model ran, as each answered request felt it: requests of one batch count the whole batch's time
    # each, as Triton counts.
    compute_infer_seconds: float = 0.0
    compute_output_seconds: float = 0.0  # time in which outputs were taken apart, as each answered request felt it
    inferences: int = 0  # rows that were answered; a request without a batch axis is one
    executions: int = 0  # runs of the model
    batches: dict[int, ExecutionTimes] = field(default_factory=dict)  # runs by number of rows
    inputs: InputWatch = field(default_factory=InputWatch)  # whether what it is asked is as it was at first
    last_ended: float = 0.0  # clock at the end of the last request; 0 when there was none

    def executed(
        self, rows: int, compute_infer: float, compute_input: float = 0.0, compute_output: float = 0.0
    ) -> None:
        """Count one run of the model, for however many requests.

        Args:
            rows: Rows of the batch; 1 for a model without a batch axis.
            compute_infer: Seconds the model ran.
            compute_input: Seconds it took to put the inputs together.
            compute_output: Seconds it took to take the outputs apart.
        """
        self.executions += 1
        times = self.batches.get(rows)
        if times is None:
            rows = min(rows, _MOST_BATCH_SIZES)
            times = self.batches.setdefault(rows, ExecutionTimes())
        times.count += 1
        times.compute_infer += compute_infer
        times.compute_input += compute_input
        times.compute_output += compute_output

    def succeeded(
        self,
        now: float,
        total: float,
        compute_infer: float,
        rows: int = 1,
        compute_input: float = 0.0,
        compute_output: float = 0.0,
        requests: int = 1,
    ) -> None:
        """Count answered requests of one run; what was not computing was waiting.

        Args:
            now: The clock.
            total: Seconds from their arrival, added up.
            compute_infer: Seconds the run that they were part of took.
            rows: Their rows, added up.
            compute_input: Seconds it took to put that run's inputs together.
            compute_output: Seconds it took to take that run's outputs apart.
            requests: How many they are.
        """
        self.successes += requests
        self.inferences += rows
        self.success_seconds += total
        self.compute_infer_seconds += requests * compute_infer
        self.compute_input_seconds += requests * compute_input
        self.compute_output_seconds += requests * compute_output
        self.queue_seconds += max(0.0, total - requests * (compute_infer + compute_input + compute_output))
        self.last_ended = now

    def failed(self, error: TiercelError, now: float, total: float = 0.0) -> None:
        """Count a failed request that came ``total`` seconds before ``now``."""
        self.failures[_REASONS.get(type(error), "OTHER")] += 1
        self.fail_seconds += total
        self.last_ended = now

    def canceled(self, now: float, total: float) -> None:
        """Count a request whose caller went away ``total`` seconds after it came."""
        self.failures["CANCELED"] += 1
        self.fail_seconds += total
        self.last_ended = now

    def as_json(self, name: str, version: str) -> dict[str, Any]:
        """In the form of Triton's statistics extension; durations in nanoseconds, times in ms of the Unix epoch."""
        ended = time.time() - (time.perf_counter() - self.last_ended)
        count = self.successes
        return {
            "name": name,
            "version": version,
            "last_inference": int(ended * 1000) if self.last_ended else 0,
            "inference_count": self.inferences,
            "execution_count": self.executions,
            "inference_stats": {
                "success": _duration(count, self.success_seconds),
                "fail": _duration(sum(self.failures.values()), self.fail_seconds),
                "queue": _duration(count, self.queue_seconds),
                "compute_input": _duration(count, self.compute_input_seconds),
                "compute_infer": _duration(count, self.compute_infer_seconds),
                "compute_output": _duration(count, self.compute_output_seconds),
            },
            "batch_stats": [
                {
                    "batch_size": rows,
                    "compute_input": _duration(times.count, times.compute_input),
                    "compute_infer": _duration(times.count, times.compute_infer),
                    "compute_output": _duration(times.count, times.compute_output),
                }
                for rows, times in sorted(self.batches.items())
            ],
        }


def _duration(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": int(seconds * 1e9)}
