"""What a window of load on one server showed, and where such samples are kept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sample:
    """One server, one kind of request, one number of connections, one window.

    Attributes:
        server: Name of the server.
        model: What was asked.
        form: How the row travelled, a :class:`~benchmarks.serving.bodies.Form`.
        kind: What the form is compared as: ``json``, ``binary`` or ``grpc``.
        connections: Closed loop, one request at a time on each.
        round: From 0; servers take turns, so that what drifts meets all of them.
        rate: Good answers a second.
        p50_ms: Median delay.
        p99_ms: Delay that a hundredth of the answers exceeded.
        failed: Errors and requests without an answer.
        cpu_us: CPU time of all the server's processes for one answer, microseconds.
        pss_bytes: Memory of all the server's processes, what they share counted once.
        bodies: How the requests differed, a :class:`~benchmarks.serving.bodies.Bodies`.
    """

    server: str
    model: str
    form: str
    kind: str
    connections: int
    round: int
    rate: float
    p50_ms: float
    p99_ms: float
    failed: int
    cpu_us: float
    pss_bytes: int
    bodies: str = "same"


@dataclass(slots=True)
class Samples:
    """All samples of a run.

    Attributes:
        samples: In the order in which they were taken.
        missing: Why a server was not measured, or not with all that was planned.
        versions: Of the servers that were started.
        seconds: The whole run took so long.
    """

    samples: list[Sample] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def write(self, path: Path) -> None:
        """Keep them for :meth:`read`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        """What :meth:`write` kept.

        Raises:
            OSError: There is nothing.
            ValueError: It is something else.
        """
        content: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        samples = [Sample(**each) for each in content["samples"]]
        return cls(samples, dict(content["missing"]), dict(content["versions"]), float(content["seconds"]))

    def names(self) -> list[str]:
        """Servers of which there are samples, in the order in which they came first."""
        return list(dict.fromkeys(sample.server for sample in self.samples))


def at(
    samples: Sequence[Sample],
    server: str,
    model: str,
    kind: str,
    connections: int | None = None,
    bodies: str | None = None,
) -> list[Sample]:
    """The samples of a server at a point."""
    return [
        sample
        for sample in samples
        if sample.server == server
        and sample.model == model
        and sample.kind == kind
        and connections in (None, sample.connections)
        and bodies in (None, sample.bodies)
    ]
