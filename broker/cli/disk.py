"""Commands about room on disks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.output import clean, print_json, print_table
from tiercel.broker.cli.parameters import command, json_option, target_options
from tiercel.broker.cli.session import Target, open_client, run_to_the_end
from tiercel.core.figures import size

if TYPE_CHECKING:
    from tiercel.broker.client import Client, DiskUse, Removal, RoomTaken

_USE_COLUMNS = ("WHERE", "WHAT", "SIZE", "NUMBER")
_REMOVAL_COLUMNS = ("TENANT", "JOB", "WHAT", "NUMBER", "SIZE", "REASON")


@command("tiercel du", "tiercel du --all-tenants")
@click.option("--all-tenants", is_flag=True, help="For the operator: of all whose tokens are in the state directory.")
@json_option
@target_options
def du(*, all_tenants: bool, as_json: bool, target: Target) -> None:
    """Say what takes room: the tenant's own things, the broker's folders, and nodes."""
    uses = run_to_the_end(_uses(target, all_tenants=all_tenants))
    use = next(iter(uses.values()))
    if as_json:
        told = use.to_json()
        if all_tenants:
            told["tenants"] = {name: each.to_json()["own"] for name, each in uses.items()}
            del told["own"]
        print_json(told)
        return
    rows = [
        _use_row(f"tenant {name}" if all_tenants else "yours", part) for name, each in uses.items() for part in each.own
    ]
    rows += [_use_row("broker", part) for part in use.broker]
    for node in use.nodes:
        rows += [_use_row(f"node {node.node_id}", part) for part in node.parts]
        rows.append(
            (f"node {clean(node.node_id)}", "(free)", f"{size(node.free_bytes)} of {size(node.total_bytes)}", "")
        )
    print_table(_USE_COLUMNS, rows)


@command("tiercel gc --dry-run")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--all-tenants", is_flag=True, help="For the operator: of all whose tokens are in the state directory.")
@json_option
@target_options
def gc(*, dry_run: bool, all_tenants: bool, as_json: bool, target: Target) -> None:
    """Remove what is kept no longer of the tenant's jobs that are over, which also happens by itself once a day."""
    removals = run_to_the_end(_collected(target, dry_run=dry_run, all_tenants=all_tenants))
    if as_json:
        print_json([removal.to_json() for removal in removals])
        return
    if removals:
        first = 0 if all_tenants else 1
        print_table(_REMOVAL_COLUMNS[first:], [_removal_row(removal)[first:] for removal in removals])
    total = sum(removal.size_bytes for removal in removals)
    click.echo(f"About {size(total)} {'would go' if dry_run else 'went'}.", err=True)


def _clients(target: Target, *, all_tenants: bool) -> dict[str, Client]:
    """Who asks, by tenant."""
    if not all_tenants:
        return {target.tenant: open_client(target)}
    from tiercel.broker.client import Client
    from tiercel.broker.client.state_dir import default_state_dir, read_broker, read_tokens

    folder = target.state_dir or default_state_dir()
    tokens = read_tokens(folder)
    address, trust = (target.broker, None) if target.broker else read_broker(folder)
    return {name: Client(address, token=token, trust=trust) for name, token in sorted(tokens.items())}


async def _uses(target: Target, *, all_tenants: bool) -> dict[str, DiskUse]:
    """What takes room, by tenant."""
    uses = {}
    for name, client in _clients(target, all_tenants=all_tenants).items():
        async with client:
            uses[name] = await client.disk_use()
    return uses


async def _collected(target: Target, *, dry_run: bool, all_tenants: bool) -> list[Removal]:
    removals: list[Removal] = []
    for client in _clients(target, all_tenants=all_tenants).values():
        async with client:
            removals += [removal async for removal in client.collect_garbage(dry_run=dry_run)]
    return removals


def _use_row(where: str, part: RoomTaken) -> tuple[str, ...]:
    return clean(where), clean(part.name), size(part.size_bytes), str(part.count or "")


def _removal_row(removal: Removal) -> tuple[str, ...]:
    return (
        *(removal.tenant, removal.job_id or "-", removal.what, str(removal.count)),
        *(size(removal.size_bytes), clean(removal.reason)),
    )
