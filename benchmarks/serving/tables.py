"""The section of ``docs/results.md`` about serving: between markers, made of the result files."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.results import Bar
from benchmarks.sections import bars_table, table
from benchmarks.serving.figures import DIFFERING, SAME
from benchmarks.serving.models import KINDS
from benchmarks.serving.samples import Json

SECTION = "serving"
"""Its name in ``docs/results.md``."""
TITLES = {"json": "JSON", "binary": "binary tensors", "grpc": "gRPC"}


def make_section(results: Sequence[Json]) -> str:
    """The section's text."""
    parts = [["## The inference server and its peers", ""]]
    for result in results:
        parts.append(_bars(result))
        if "rows" in result["figures"]:
            parts += _comparison(result)
        for name in ("overload", "colocation", "resnet"):
            if name in result["figures"]:
                parts.append(_plain_table(result["figures"][name]))
    return "\n".join("\n".join(part) + "\n" for part in parts if part)


def _bars(result: Json) -> list[str]:
    machine = result["machine"]
    where = f"{machine['cores']} cores ({machine['cpu']}, Linux {machine['kernel']})"
    return [
        f"### {result['name']}",
        "",
        f"`{result['command']}` on {where}, {result['made_at']}.",
        "",
        bars_table("measured", map(Bar.from_json, result["bars"])),
    ]


def _comparison(result: Json) -> list[list[str]]:
    figures = result["figures"]
    points = dict.fromkeys((row["model"], row["kind"]) for row in figures["rows"])
    parts = [_table(figures, model, kind) for model, kind in sorted(points, key=_order)]
    ahead = [f"* {title}: {point}" for title, found in figures.get("ahead", {}).items() for point in found]
    if ahead:
        parts.append(["#### Where a peer is ahead", "", *ahead])
    if figures["missing"]:
        parts.append(["#### Left out", "", *(f"* {name}: {why}" for name, why in figures["missing"].items())])
    return parts


def _order(point: tuple[str, str]) -> tuple[int, int]:
    model, kind = point
    return list(TITLES).index(kind) // 2, list(KINDS).index(model) * 2 + list(TITLES).index(kind)


_Column = tuple[int, int, str]
"""Of a table: those of one body for ever first, then by connections and by how requests differ."""


def _column(row: Json) -> _Column:
    bodies = row.get("bodies", SAME)
    return int(bodies != SAME), row["connections"], bodies


def _head(column: _Column) -> str:
    _, connections, bodies = column
    return str(connections) if bodies == SAME else f"{connections}, {DIFFERING[bodies]}"


_AT_32: _Column = (0, 32, SAME)


def _table(figures: Json, model: str, kind: str) -> list[str]:
    rows = [row for row in figures["rows"] if row["model"] == model and row["kind"] == kind]
    numbers = sorted({_column(row) for row in rows})
    rates = {(row["server"], _column(row)): row["rate"] for row in rows}
    most = max(number for number in numbers if number[0] == 0)
    servers = sorted({row["server"] for row in rows}, key=lambda server: -rates.get((server, most), 0.0))
    lines = []
    for server in servers:
        own = {_column(row): row for row in rows if row["server"] == server}
        cells = [_cell(own.get(number)) for number in numbers]
        crowd = own.get(_AT_32) or own[max(column for column in own if column[0] == 0)]
        version = figures["versions"].get(server, "")
        lines.append(
            (f"{server} {version} ({crowd['form']})", *cells, f"{crowd['cpu_us']:.0f}", f"{crowd['pss_mib']:.0f}")
        )
    note = (
        "Answers a second (least to most of the rounds), p50 / p99 in ms, by connections; CPU microseconds of all "
        "processes a request and their memory, at 32 connections."
    )
    return [
        f"#### {KINDS[model].about}: {TITLES[kind]}",
        "",
        note,
        "",
        table(("server", *map(_head, numbers), "CPU, us", "PSS, MiB"), lines),
    ]


def _cell(row: Json | None) -> str:
    if row is None:
        return "-"
    failed = f", {row['failed']} failed" if row["failed"] else ""
    spread = f"{row['rate_min']:,.0f} to {row['rate_max']:,.0f}"
    return f"{row['rate']:,.0f} ({spread}), {row['p50_ms']:.2f} / {row['p99_ms']:.2f}{failed}"


def _plain_table(rows: Sequence[Json]) -> list[str]:
    if not rows:
        return []
    columns = list(rows[0])
    lines = [f"| {' | '.join('-' if row[name] is None else str(row[name]) for name in columns)} |" for row in rows]
    return [f"| {' | '.join(name.replace('_', ' ') for name in columns)} |", f"|{' --- |' * len(columns)}", *lines]
