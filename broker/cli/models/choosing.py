"""Commands that choose which version of an endpoint answers, and whose files are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.models.names import model_argument, model_name, version_number
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


@command("tiercel models pin digits", "tiercel models pin digits:2")
@model_argument()
@json_option
@target_options
def pin(model: str, *, as_json: bool, target: Target) -> None:
    """Let a version answer and stay whatever is delivered, until you promote another one."""
    name, version = model_name(model)
    _show(run(target, lambda client: client.models.pin(name, version)), as_json=as_json)


@command("tiercel models remove digits 2")
@endpoint_argument
@click.argument("version", metavar="VERSION", help="Its number.")
@json_option
@target_options
def remove(endpoint: str, version: str, *, as_json: bool, target: Target) -> None:
    """Remove the files of a version that does not answer, for good; what is known of it stays."""
    number = version_number(version)
    run(target, lambda client: client.models.remove(endpoint, number))
    if as_json:
        print_json({"removed": f"{endpoint}:{number}"})
    else:
        click.echo(f"The files of {endpoint}:{number} go from all nodes.")


@command("tiercel models keep digits 10")
@endpoint_argument
@click.argument("count", type=click.IntRange(1, 100), metavar="COUNT", help="1 to 100; 5 where nobody says.")
@json_option
@target_options
def keep(endpoint: str, count: int, *, as_json: bool, target: Target) -> None:
    """Keep the files of so many of the newest versions, beside the one that answers; others go at once."""
    run(target, lambda client: client.models.keep(endpoint, count))
    if as_json:
        print_json({"endpoint": endpoint, "keep": count})
    else:
        click.echo(f"{endpoint} keeps the files of its newest {count} versions, and of the one that answers.")


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
