"""A version of an endpoint, as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.broker.cli.output import age, clean, milliseconds, number
from tiercel.core.figures import size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tiercel.broker.client import Difference, ModelCard, VersionInfo
    from tiercel.core.cheap_variants import CheapVariant
    from tiercel.core.lineage import Lineage

COLUMNS = ("MODEL", "STATE", "PROMISED", "MEASURED", "P95", "SIZE", "AGE", "JOB", "NODES")


def row(version: VersionInfo) -> tuple[str, ...]:
    """A version in the list; see :data:`COLUMNS`."""
    return (
        f"{version.endpoint}:{version.version}",
        state(version),
        number(version.target),
        f"{version.metric} {number(version.value)}".strip(),
        milliseconds(version.p95_seconds),
        size(version.size_bytes) if version.size_bytes else "-",
        age(version.delivered_at),
        version.job_id or "-",
        ",".join(version.nodes) or "-",
    )


def state(version: VersionInfo) -> str:
    """Whether a version answers, may, or is gone."""
    if version.live:
        return "pinned" if version.pinned else "live"
    if not version.kept:
        return "gone"
    return "held" if version.held else "kept"


def lines(card: ModelCard) -> list[str]:
    """All about one version, as far as it is known."""
    version = card.version
    promised = f", {number(version.target)} promised by tier {version.tier}" if version.target is not None else ""
    source = "as said" if version.deployed_by else "measured"
    delays = f"median {milliseconds(version.p50_seconds)}, 95 % within {milliseconds(version.p95_seconds)}"
    told = {
        "model": card.name + f" ({version.variant})" * bool(version.variant),
        "state": state(version) + f": {version.held}" * bool(version.held),
        "accuracy": f"{version.metric} {number(version.value)} {source}{promised}" if version.metric else "",
        **{each.kind.value: _variant(version.metric, each) for each in version.cheap_variants},
        "in use": _in_use(version),
        "inputs": "; ".join(each.words for each in version.inputs),
        "latency": delays if version.p50_seconds is not None else "",
        "size": size(version.size_bytes) if version.size_bytes else "",
        "sha256": version.sha256,
        "nodes": ", ".join(version.nodes),
        "deployed": f"by {version.deployed_by} from {version.file}" if version.deployed_by else "",
        "delivered": version.delivered_at.isoformat(timespec="seconds"),
        **_lineage(card.lineage),
    }
    return [f"{name:<11} {clean(text)}" for name, text in told.items() if text]


def _variant(metric: str, made: CheapVariant) -> str:
    """What became of a cheap variant."""
    if not made.shipped:
        return f"not shipped: {made.reason}"
    speed = f", {made.fp32_seconds / made.seconds:.1f} times as fast" if made.seconds and made.fp32_seconds else ""
    return f"{metric} {number(made.value)}{speed}, {size(made.size_bytes)}, {made.made}"


def _in_use(version: VersionInfo) -> str:
    """How often it was right, by what applications said."""
    said = version.in_use
    if said is None:
        return ""
    return f"right {number(said.accuracy)} of {said.rows} rows, {number(said.low)} to {number(said.high)} at 95 %"


def _lineage(lineage: Lineage) -> dict[str, str]:
    curve = lineage.curve
    return {
        "reported": ", ".join(f"{name} {number(value)}" for name, value in sorted(lineage.metrics.items())),
        "job": f"{lineage.job_id} {lineage.job_name}".strip(),
        "run": lineage.run_id,
        "labels": ", ".join(f"{name}={value}" for name, value in sorted(lineage.labels.items())),
        "program": lineage.script or lineage.module or " ".join(lineage.command) or lineage.image,
        "script": f"sha256 {lineage.script_sha256}" if lineage.script_sha256 else "",
        "project": f"sha256 {lineage.project_sha256}" if lineage.project_sha256 else "",
        "commit": lineage.commit + ", with changes that were not committed" * lineage.dirty,
        "arguments": " ".join(lineage.arguments),
        "env": ", ".join(f"{name}={value}" for name, value in sorted(lineage.env.items())),
        "data": ", ".join(lineage.data),
        "packages": ", ".join(lineage.requirements),
        "environment": lineage.environment,
        "image": lineage.image_id,
        "warm start": f"weights of job {lineage.warm_start}" if lineage.warm_start else "",
        "curve": (
            f"{len(curve)} reports, {number(curve[0].value)} to {number(curve[-1].value)} in {curve[-1].seconds:.1f} s "
            "(--json has them)"
            if curve
            else ""
        ),
    }


def difference_rows(found: Iterable[Difference]) -> Sequence[tuple[str, str, str]]:
    """Rows of what differs, each value in one line."""
    return [(each.what, _value(each.first), _value(each.second)) for each in found]


def _value(value: object) -> str:
    if value in (None, "", [], {}):
        return "-"
    if isinstance(value, float):
        return number(value)
    return clean(", ".join(map(str, value)) if isinstance(value, list) else str(value))
