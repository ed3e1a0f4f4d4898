"""Commands that choose which version of an endpoint answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.models.names import version_number
from tiercel.broker.cli.output import print_json
from tiercel.broker.cli.parameters import command, endpoint_argument, json_option, target_options
from tiercel.broker.cli.session import Target, run

if TYPE_CHECKING:
    from tiercel.broker.client import EndpointInfo


_NEWEST = "latest"


@command("tiercel models promote digits 3", "tiercel models promote digits latest")
@endpoint_argument
@click.argument("version", metavar="VERSION", help="Its number, or 'latest' for the newest: better ones then follow.")
@json_option
@target_options
def promote(endpoint: str, version: str, *, as_json: bool, target: Target) -> None:
    """Let a version of an endpoint answer, whatever is better or newer; it stays until you promote another one."""
    number = None if version == _NEWEST else version_number(version)
    _show(run(target, lambda client: client.models.promote(endpoint, number)), as_json=as_json)


@command("tiercel models rollback digits", "tiercel models rollback digits 2")
@endpoint_argument
@click.argument(
    "version", default="", metavar="[VERSION]", help="Its number; the one that answered before when left out."
)
@json_option
@target_options
def rollback(endpoint: str, version: str, *, as_json: bool, target: Target) -> None:
    """Let an earlier version of an endpoint answer again; it stays until you promote another one."""
    number = version_number(version) if version else None
    _show(run(target, lambda client: client.models.rollback(endpoint, number)), as_json=as_json)


def _show(endpoint: EndpointInfo, *, as_json: bool) -> None:
    if as_json:
        print_json(endpoint.to_json())
        return
    chosen = [variant.live_version for variant in endpoint.variants] or [endpoint.live_version or 0]
    pinned = endpoint.pinned or any(variant.pinned for variant in endpoint.variants)
    words = ", ".join(f"version {number}" for number in sorted(chosen))
    click.echo(f"{endpoint.name} answers with {words} as soon as node {endpoint.node_id or '-'} has loaded it.")
    if pinned:
        click.echo(f"It stays whatever is delivered, until 'tiercel models promote {endpoint.name} {_NEWEST}'.")
