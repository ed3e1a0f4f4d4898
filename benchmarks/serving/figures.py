"""From samples to figures and bars. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from benchmarks.results import Bar
from benchmarks.serving.bodies import Bodies
from benchmarks.serving.peers import OURS, REFERENCES
from benchmarks.serving.samples import Json, Sample, Samples, at

SAME = Bodies.SAME.value
DIFFERING = {
    SAME: "one body for ever",
    Bodies.NUMBERS.value: "other numbers each time",
    Bodies.WIDTHS.value: "numbers of other widths",
    Bodies.IDS.value: "another id each time",
}
CEILING_AT = (1, 8, 32, 64)
"""Connections at which ours is held against the bare ceiling."""
TITLES = {"json": "JSON", "binary": "binary"}
CROWD = 64
"""Connections at which rates are compared with goals."""


def make_figures(found: Samples, planned: int) -> Json:
    """The content of the result file: one row for each server and point."""
    keys = dict.fromkeys((each.server, each.model, each.kind, each.connections, each.bodies) for each in found.samples)
    return {
        "rows": [_row(at(found.samples, *key)) for key in keys],
        "planned": planned,
        "missing": found.missing,
        "versions": found.versions,
        "rounds": len({each.round for each in found.samples}),
        "seconds": found.seconds,
    }


def _row(samples: Sequence[Sample]) -> Json:
    first = samples[0]
    rates = [each.rate for each in samples]
    return {
        "server": first.server,
        "model": first.model,
        "form": first.form,
        "kind": first.kind,
        "connections": first.connections,
        "bodies": first.bodies,
        "rate": round(statistics.median(rates), 1),
        "rate_min": min(rates),
        "rate_max": max(rates),
        "p50_ms": round(statistics.median(each.p50_ms for each in samples), 4),
        "p99_ms": round(statistics.median(each.p99_ms for each in samples), 4),
        "cpu_us": round(statistics.median(each.cpu_us for each in samples), 2),
        "pss_mib": round(statistics.median(each.pss_bytes for each in samples) / 2**20, 1),
        "failed": sum(each.failed for each in samples),
        "silent": sum(each.rate == 0 for each in samples),
    }


def bars_of(figures: Json) -> list[Bar]:
    """What a full comparison has to show, from the figures of :func:`make_figures`."""
    rates, p50, cpu = (_reader(figures, name) for name in ("rate", "p50_ms", "cpu_us"))
    behind, slower = rivals_ahead(figures)
    failed = sum(row["failed"] for row in figures["rows"] if row["server"] == OURS)

    def against(other: str, model: str, kind: str, connections: int = CROWD, bodies: str = SAME) -> float | None:
        mine, others = (rates(server, model, kind, connections, bodies) for server in (OURS, other))
        return ratio(mine, others)

    bars = [
        Bar("failed requests of ours", float(failed), "== 0"),
        Bar("MLP, JSON, 64 connections: rate over Triton's", against("Triton", "mlp", "json"), ">= 2"),
        *(
            Bar(
                f"MLP, JSON, 64 connections, {words}: rate over mosec's",
                against("mosec", "mlp", "json", bodies=bodies),
                ">= 1.3",
            )
            for bodies, words in DIFFERING.items()
        ),
        *(
            Bar(
                f"MLP, {TITLES[kind]}, {_connections(many)}: rate over the bare ceiling",
                against("bare", "mlp", kind, many),
                ">= 0.8",
            )
            for kind in ("json", "binary")
            for many in CEILING_AT
        ),
        Bar(
            "MLP, JSON, 1 connection: p50 over Triton's",
            ratio(p50(OURS, "mlp", "json", 1), p50("Triton", "mlp", "json", 1)),
            "<= 0.5",
        ),
        Bar("MLP, JSON, 32 connections: CPU of a request", cpu(OURS, "mlp", "json", 32), "<= 40", "us"),
        Bar("HTTP points at which a peer has a higher rate", _count(behind), "== 0"),
        Bar("HTTP points at which a peer has a lower p99", _count(slower), "== 0"),
        Bar("MLP, gRPC, 64 connections: rate over Triton's", against("Triton", "mlp", "grpc"), ">= 1"),
    ]
    others = {other: against(other, "mlp", "grpc") for other in ("MLServer", "KServe")}
    return bars + [
        Bar(f"MLP, gRPC, 64 connections: rate over {name}'s", value, "> 1") for name, value in others.items()
    ]


def rivals_ahead(figures: Json) -> tuple[list[str] | None, list[str] | None]:
    """HTTP points at which a peer answers more, and those at which its p99 is lower; None where nothing compares."""
    mine = {_point(row): row for row in figures["rows"] if row["server"] == OURS and row["kind"] != "grpc"}
    rivals = [row for row in figures["rows"] if row["server"] not in (OURS, *REFERENCES) and _point(row) in mine]
    if not rivals:
        return None, None
    behind = [_named(row) for row in rivals if row["rate"] > mine[_point(row)]["rate"]]
    slower = [_named(row) for row in rivals if row["p99_ms"] < mine[_point(row)]["p99_ms"]]
    return behind, slower


def sanity_bars(figures: Json) -> list[Bar]:
    """What must hold whatever the machine is doing."""
    rows = figures["rows"]
    servers = len({row["server"] for row in rows})
    return [
        Bar("servers that were started and answered as ONNX Runtime does", servers, f"== {figures['planned']}"),
        Bar("failed requests", sum(row["failed"] for row in rows), "== 0"),
        Bar("windows without an answer", sum(row["silent"] for row in rows), "== 0"),
    ]


def _connections(many: int) -> str:
    return "1 connection" if many == 1 else f"{many} connections"


def ratio(value: float | None, base: float | None) -> float | None:
    """One by the other, or None where either is missing."""
    return None if value is None or not base else round(value / base, 3)


def _reader(figures: Json, name: str) -> Callable[..., float | None]:
    values = {(row["server"], *_point(row)): float(row[name]) for row in figures["rows"]}
    return lambda server, model, kind, connections, bodies=SAME: values.get((server, model, kind, connections, bodies))


def _point(row: Json) -> tuple[str, str, int, str]:
    return row["model"], row["kind"], row["connections"], row.get("bodies", SAME)


def _named(row: Json) -> str:
    return f"{row['server']}: {row['model']}, {row['kind']}, {row['connections']} connections, {_point(row)[3]} bodies"


def _count(points: list[str] | None) -> float | None:
    return None if points is None else float(len(points))
