"""What an application saw: every request with its time, latency and answer, and the figures made of them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

SWAP_WINDOW_SECONDS = 1.0
"""A request belongs to a swap if it was due within this long before or after a version began to answer."""

MAX_FAILURES_TOLD = 50
_COLUMNS = ("at", "endpoint", "latency", "version", "score", "late")


@dataclass(frozen=True, slots=True)
class Request:
    """One request of the application."""

    at: float  # when it was due, seconds since the Unix epoch; it may have been sent later
    endpoint: str  # whom it asked
    latency: float  # seconds from when it was due to its answer
    version: int | None  # version that answered, or None when it failed
    score: float | None  # how right the answer is, in the terms of the endpoint's metric, or None when it failed
    late: float = 0.0  # seconds of the latency that passed before the application came to send it

    @property
    def failed(self) -> bool:
        """Whether there was no right answer."""
        return self.version is None

    @property
    def answered_at(self) -> float:
        """When the answer was there, seconds since the Unix epoch."""
        return self.at + self.latency


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request failed."""

    at: float
    endpoint: str
    why: str


@dataclass(slots=True)
class LoadRecord:
    """Everything an application saw, in the order of the answers."""

    requests: list[Request] = field(default_factory=list)  # all of them
    failures: list[Failure] = field(default_factory=list)  # the first failures, with their reasons
    cpu_seconds: float = 0.0  # CPU time that the application itself used while it sent requests

    def add(self, request: Request) -> None:
        """Take in an answered request."""
        self.requests.append(request)

    def add_failure(self, request: Request, why: str) -> None:
        """Take in a request that failed, and why."""
        self.requests.append(request)
        if len(self.failures) < MAX_FAILURES_TOLD:
            self.failures.append(Failure(request.at, request.endpoint, why))

    @property
    def failed(self) -> int:
        """How many requests failed."""
        return sum(request.failed for request in self.requests)

    def rate(self) -> float:
        """Requests a second, from the first due to the last."""
        if len(self.requests) < 2:
            return 0.0
        times = [request.at for request in self.requests]
        return (len(times) - 1) / max(max(times) - min(times), 1e-9)

    def slowest_second_rate(self) -> float:
        """Fewest requests that were due in a whole second between the first and the last."""
        if not self.requests:
            return 0.0
        times = np.array([request.at for request in self.requests])
        seconds = np.floor(times - times.min()).astype(int)
        whole = np.bincount(seconds)[:-1]
        return float(whole.min()) if whole.size else float(len(times))

    def first_answer(self, endpoint: str, version: int) -> float | None:
        """When the endpoint first answered from this version or a newer one, seconds since the Unix epoch."""
        times = (
            request.answered_at
            for request in self.requests
            if request.endpoint == endpoint and request.version is not None and request.version >= version
        )
        return min(times, default=None)

    def scores(self, endpoint: str) -> dict[int, tuple[float, int]]:
        """For each version: the mean score of its answers, and how many there were."""
        by_version: dict[int, list[float]] = {}
        for request in self.requests:
            if request.endpoint == endpoint and request.version is not None and request.score is not None:
                by_version.setdefault(request.version, []).append(request.score)
        return {
            version: (math.fsum(scores) / len(scores), len(scores)) for version, scores in sorted(by_version.items())
        }

    def split_by_swaps(self, swaps: Iterable[float]) -> tuple[list[float], list[float]]:
        """Latencies in seconds of answered requests: those due near a swap, and the rest.

        Args:
            swaps: When versions began to answer, seconds since the Unix epoch. All endpoints share one server, so a
                swap of any of them counts for the requests to all.
        """
        answered = [request for request in self.requests if not request.failed]
        times = np.array([request.at for request in answered])
        near = np.zeros(len(answered), dtype=bool)
        for swap in swaps:
            near |= np.abs(times - swap) <= SWAP_WINDOW_SECONDS
        inside = [request.latency for request, is_near in zip(answered, near, strict=True) if is_near]
        outside = [request.latency for request, is_near in zip(answered, near, strict=True) if not is_near]
        return inside, outside

    def write(self, path: Path) -> None:
        """Write as JSON, by columns."""
        document = {
            "cpu_seconds": self.cpu_seconds,
            "requests": {name: [getattr(request, name) for request in self.requests] for name in _COLUMNS},
            "failures": [{"at": each.at, "endpoint": each.endpoint, "why": each.why} for each in self.failures],
        }
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(document, allow_nan=False), encoding="utf-8")
        temporary.replace(path)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what :meth:`write` wrote."""
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        columns = document["requests"]
        rows = zip(*(columns[name] for name in _COLUMNS), strict=True)
        return cls(
            requests=[Request(*row) for row in rows],
            failures=[Failure(**failure) for failure in document["failures"]],
            cpu_seconds=document["cpu_seconds"],
        )


def percentile_ms(latencies: Sequence[float], percent: float) -> float | None:
    """A percentile in milliseconds of latencies in seconds, or None when there are none."""
    return float(np.percentile(latencies, percent)) * 1000 if latencies else None
