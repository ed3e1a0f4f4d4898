"""Commands about room on disks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tiercel.broker.cli.files import size
from tiercel.broker.cli.output import clean, print_json, print_table
from tiercel.broker.cli.session import AsJson, BrokerAddress, StateDir, Target, TenantName, run

if TYPE_CHECKING:
    from tiercel.broker.client import Client, Removal, RoomTaken

_USE_COLUMNS = ("WHERE", "WHAT", "SIZE", "NUMBER")
_REMOVAL_COLUMNS = ("JOB", "WHAT", "NUMBER", "SIZE", "REASON")


def du(
    *,
    as_json: AsJson = False,
    state_dir: StateDir = None,
    broker: BrokerAddress = "",
    tenant: TenantName = "default",
) -> None:
    """Say what takes room: the tenant's own things, the broker's folders, and nodes."""
    use = run(Target(state_dir, broker, tenant), lambda client: client.disk_use())
    if as_json:
        print_json(use.to_json())
        return
    rows = [_use_row("yours", part) for part in use.own] + [_use_row("broker", part) for part in use.broker]
    for node in use.nodes:
        rows += [_use_row(f"node {node.node_id}", part) for part in node.parts]
        rows.append(
            (f"node {clean(node.node_id)}", "(free)", f"{size(node.free_bytes)} of {size(node.total_bytes)}", "")
        )
    print_table(_USE_COLUMNS, rows)


def gc(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: AsJson = False,
    state_dir: StateDir = None,
    broker: BrokerAddress = "",
    tenant: TenantName = "default",
) -> None:
    """Remove what is kept no longer of the tenant's jobs that are over, which also happens by itself once a day."""

    async def collect(client: Client) -> list[Removal]:
        return [removal async for removal in client.collect_garbage(dry_run=dry_run)]

    removals = run(Target(state_dir, broker, tenant), collect)
    if as_json:
        print_json([removal.to_json() for removal in removals])
        return
    if removals:
        print_table(_REMOVAL_COLUMNS, [_removal_row(removal) for removal in removals])
    total = sum(removal.size_bytes for removal in removals)
    typer.echo(f"About {size(total)} {'would go' if dry_run else 'went'}.", err=True)


def _use_row(where: str, part: RoomTaken) -> tuple[str, ...]:
    return clean(where), clean(part.name), size(part.size_bytes), str(part.count or "")


def _removal_row(removal: Removal) -> tuple[str, ...]:
    return removal.job_id or "-", removal.what, str(removal.count), size(removal.size_bytes), clean(removal.reason)
