"""``tiercel status``: the cluster in one screen, and what to do about what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.exit_codes import FAILED
from tiercel.broker.cli.operator import as_operator_or_tenant
from tiercel.broker.cli.output import clean, print_json, print_table
from tiercel.broker.cli.parameters import broker_option, command, json_option, state_dir_option
from tiercel.core.figures import size
from tiercel.core.nodes import Drain

if TYPE_CHECKING:
    from pathlib import Path

    from tiercel.core.status import ClusterStatus, EndpointStatus, NodeStatus

_NODE_COLUMNS = ("NODE", "STATE", "VERSION", "JOBS", "CORES ASKED", "MEMORY", "GPUS HELD", "DISK FREE")
_ENDPOINT_COLUMNS = ("ENDPOINT", "TENANT", "LIVE", "ANSWERS ON", "SILENT ON")


@command("tiercel status", "tiercel status --json")
@json_option
@state_dir_option
@broker_option
@click.option("--tenant", default="", help="Whose jobs and endpoints; those of all, where the operator's token is.")
def status(*, as_json: bool, state_dir: Path | None, broker: str, tenant: str) -> None:
    """Show the cluster at a glance; exit code 1 if there is something to see to."""
    found = _ask(state_dir, broker, tenant)
    problems = found.problems()
    if as_json:
        print_json(found.to_json())
    else:
        _print(found)
        for problem in problems:
            click.echo(f"! {clean(problem.about)}: {clean(problem.what).rstrip('.')}. To do: {clean(problem.action)}.")
    if problems:
        raise click.exceptions.Exit(FAILED)


def _ask(state_dir: Path | None, broker: str, tenant: str) -> ClusterStatus:
    from tiercel.broker.client.status import cluster_status

    return as_operator_or_tenant(state_dir, broker, tenant, cluster_status)


def _print(found: ClusterStatus) -> None:
    online = sum(node.online for node in found.nodes)
    jobs = ", ".join(f"{count} {state}" for state, count in found.jobs.items()) or "none"
    whose = f" of tenant {clean(found.tenant)}" if found.tenant else ""
    click.echo(f"Broker {found.version}. Nodes online: {online} of {len(found.nodes)}. Jobs under way{whose}: {jobs}.")
    if found.nodes:
        print_table(_NODE_COLUMNS, [_node_row(node) for node in found.nodes])
    if found.endpoints:
        click.echo()
        print_table(_ENDPOINT_COLUMNS, [_endpoint_row(each) for each in found.endpoints])
    if found.waiting:
        click.echo()
        rows = [(job.id, clean(job.tenant), clean(job.reason)) for job in found.waiting]
        print_table(("PENDING JOB", "TENANT", "REASON"), rows)
    _say_rotation(found)


def _say_rotation(found: ClusterStatus) -> None:
    from tiercel.broker.cli.authority import words_of

    if found.rotation is not None:
        click.echo()
        for line in words_of(found.rotation):
            click.echo(line)


def _node_row(node: NodeStatus) -> tuple[str, ...]:
    return (
        clean(node.id),
        ("online" if node.online else "offline") + ("" if node.drain is Drain.NO else ", drained"),
        clean(node.version) or "?",
        str(node.jobs),
        f"{node.cpu_cores_asked:g} of {node.cpu_cores:g}",
        f"{size(node.memory_reserved_bytes)} of {size(node.memory_bytes)}",
        f"{node.accelerators_held} of {node.accelerators}" if node.accelerators else "-",
        f"{size(node.disk_free_bytes)} of {size(node.disk_total_bytes)}" if node.disk_total_bytes else "?",
    )


def _endpoint_row(endpoint: EndpointStatus) -> tuple[str, ...]:
    silent = [node for node in endpoint.nodes if node not in endpoint.answering]
    return (
        clean(endpoint.name),
        clean(endpoint.tenant),
        str(endpoint.live_version or "-"),
        ",".join(endpoint.answering) or "-",
        ",".join(silent) or "-",
    )
