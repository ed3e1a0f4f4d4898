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
    """One server, one kind of request, one number of connections, one window."""

    server: str  # name of the server
    model: str  # what was asked
    form: str  # how the row travelled, a :class:`~benchmarks.serving.bodies.Form`
    kind: str  # what the form is compared as: ``json``, ``binary`` or ``grpc``
    connections: int  # closed loop, one request at a time on each
    round: int  # from 0; servers take turns, so that what drifts meets all of them
    rate: float  # good answers a second
    p50_ms: float  # median delay
    p99_ms: float  # delay that a hundredth of the answers exceeded
    failed: int  # errors and requests without an answer
    cpu_us: float  # CPU time of all the server's processes for one answer, microseconds
    pss_bytes: int  # memory of all the server's processes, what they share counted once
    bodies: str = "same"  # how the requests differed, a :class:`~benchmarks.serving.bodies.Bodies`


@dataclass(slots=True)
class Samples:
    """All samples of a run."""

    samples: list[Sample] = field(default_factory=list)  # in the order in which they were taken
    # Why a server was not measured, or not with all that was planned.
    missing: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)  # of the servers that were started
    seconds: float = 0.0  # the whole run took so long

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
