"""The command that says where versions come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.completion import complete_endpoint
from tiercel.broker.cli.output import age, clean, number, print_json, print_table
from tiercel.broker.cli.parameters import command, json_option, target_options
from tiercel.broker.cli.session import Target, fail, run

if TYPE_CHECKING:
    from tiercel.broker.client import Lineage

_COLUMNS = ("VERSION", "VALUE", "RUN", "PROGRAM", "PROJECT", "COMMIT", "AGE", "STATE")
_SHORT = 12


@command("tiercel lineage digits", "tiercel lineage digits:2 --json")
@click.argument(
    "endpoint",
    metavar="ENDPOINT[:VERSION]",
    help="All versions of an endpoint, or one of them with all that is known.",
    shell_complete=complete_endpoint,
)
@json_option
@target_options
def lineage(endpoint: str, *, as_json: bool, target: Target) -> None:
    """Say where versions of an endpoint come from: job, run, program, project, data, arguments, metrics."""
    name, colon, written = endpoint.partition(":")
    if colon and not (written.isascii() and written.isdecimal() and 0 < int(written) < 2**63):
        fail(f"VERSION: {written!r} is no version; give a number such as {name}:2.")
    found = run(target, lambda client: client.lineage(name, int(written) if colon else None))
    if as_json:
        print_json(found[0].to_json() if colon else [each.to_json() for each in found])
    elif colon:
        click.echo("\n".join(_lines(found[0])))
    elif found:
        print_table(_COLUMNS, [_row(each) for each in found])
    else:
        click.echo("Nothing was delivered to this endpoint yet.", err=True)


def _row(version: Lineage) -> tuple[str, ...]:
    return (
        str(version.version),
        f"{version.metric} {number(version.value)}",
        version.run_id or version.job_id,
        clean(_program(version)),
        version.project_sha256[:_SHORT] or "-",
        _commit(version) or "-",
        age(version.delivered_at),
        _state(version),
    )


def _lines(version: Lineage) -> list[str]:
    """All about one version, as far as it is known."""
    curve = version.curve
    told = {
        "version": f"{version.endpoint}:{version.version}" + f" ({version.variant})" * bool(version.variant),
        "state": _state(version) + f": {version.held}" * bool(version.held),
        "metric": f"{version.metric} {number(version.value)}" + f" for tier {version.tier}" * bool(version.tier),
        "reported": ", ".join(f"{name} {number(value)}" for name, value in sorted(version.metrics.items())),
        "delivered": version.delivered_at.isoformat(timespec="seconds"),
        "model": f"sha256 {version.model_sha256} on node {version.node_id}",
        "job": f"{version.job_id} {version.job_name}",
        "run": version.run_id,
        "labels": ", ".join(f"{name}={value}" for name, value in sorted(version.labels.items())),
        "program": _program(version),
        "script": f"sha256 {version.script_sha256}" if version.script_sha256 else "",
        "project": f"sha256 {version.project_sha256}" if version.project_sha256 else "",
        "commit": version.commit + ", with changes that were not committed" * version.dirty,
        "arguments": " ".join(version.arguments),
        "env": ", ".join(f"{name}={value}" for name, value in sorted(version.env.items())),
        "data": ", ".join(version.data),
        "packages": ", ".join(version.requirements),
        "environment": version.environment,
        "image": version.image_id,
        "curve": (
            f"{len(curve)} reports, {number(curve[0].value)} to {number(curve[-1].value)} in {curve[-1].seconds:.1f} s "
            "(--json has them)"
            if curve
            else ""
        ),
    }
    return [f"{name:<11} {clean(text)}" for name, text in told.items() if text]


def _program(version: Lineage) -> str:
    return version.script or version.module or " ".join(version.command) or version.image or "-"


def _commit(version: Lineage) -> str:
    return version.commit[:_SHORT] + "+" * version.dirty


def _state(version: Lineage) -> str:
    if version.live:
        return "live, pinned" if version.pinned else "live"
    if version.held:
        return "held"
    return "kept" if version.kept else "gone"
