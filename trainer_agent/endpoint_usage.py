"""What endpoints' requests took between two heartbeats, from the inference server's running totals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tiercel.v1 import nodes_pb2


@dataclass(frozen=True, slots=True)
class Totals:
    """What one endpoint's requests took since the server began.

    Attributes:
        requests: Requests that arrived.
        answers: Those that were answered with a result.
        delay_seconds: From arrival to answer, added up over the answers.
        cpu_seconds: CPU that running the model took.
    """

    requests: int = 0
    answers: int = 0
    delay_seconds: float = 0.0
    cpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ServingUsage:
    """What a server counted.

    Attributes:
        uptime_seconds: For how long it had been running.
        totals: By endpoint.
    """

    uptime_seconds: float
    totals: Mapping[str, Totals] = field(default_factory=dict)


class UsageMeter:
    """Turns totals into what happened since it was last asked; whose server it is may change any time."""

    def __init__(self) -> None:
        self._told: ServingUsage | None = None
        self._latest: ServingUsage | None = None

    def note(self, usage: ServingUsage) -> None:
        """Take in what the server counted. What it counted before the first look is nobody's news."""
        if self._latest is None or usage.uptime_seconds < self._latest.uptime_seconds:
            self._told = usage
        self._latest = usage

    def take(self) -> list[nodes_pb2.EndpointUsage]:
        """What happened since the last call, endpoints by name; those that nobody asked anything are left out."""
        if self._told is None or self._latest is None:
            return []
        told, self._told = self._told, self._latest
        seconds = self._latest.uptime_seconds - told.uptime_seconds
        if seconds <= 0:
            return []
        changes = {name: _change(told.totals.get(name, Totals()), now) for name, now in self._latest.totals.items()}
        return [
            nodes_pb2.EndpointUsage(
                endpoint=name,
                seconds=seconds,
                requests=change.requests,
                answers=change.answers,
                delay_seconds=change.delay_seconds,
                cpu_seconds=change.cpu_seconds,
            )
            for name, change in sorted(changes.items())
            if change != Totals()
        ]


def _change(before: Totals, after: Totals) -> Totals:
    return Totals(
        max(after.requests - before.requests, 0),
        max(after.answers - before.answers, 0),
        max(after.delay_seconds - before.delay_seconds, 0.0),
        max(after.cpu_seconds - before.cpu_seconds, 0.0),
    )
