"""``tiercel key`` and ``tiercel endpoints access``: who may ask endpoints, and keys for who is nobody's tenant."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.completion import complete_endpoint
from tiercel.broker.cli.exit_codes import USAGE
from tiercel.broker.cli.output import age, print_json, print_table
from tiercel.broker.cli.parameters import command, json_option, target_options
from tiercel.broker.cli.session import Target, fail, run
from tiercel.core.endpoint_access import EndpointAccess, Key
from tiercel.core.errors import InvalidSpecError
from tiercel.core.rates import parse_rate

if TYPE_CHECKING:
    from tiercel.broker.client import Client

_DAY_SECONDS = 86_400.0


@command("tiercel key create --endpoint digits --rate 100/s --days 30")
@click.option("--endpoint", required=True, help="The endpoint's name.", shell_complete=complete_endpoint)
@click.option("--rate", default="", help="How often it may ask: 100/s, 30/m or 5000/h. Any number when left out.")
@click.option("--days", type=click.FloatRange(min=0), default=0.0, help="How long it is good; for ever when left out.")
@click.option("--name", default="", help="A word for it, such as who gets it.")
@json_option
@target_options
def create(*, endpoint: str, rate: str, days: float, name: str, as_json: bool, target: Target) -> None:
    """Print a new key, this once; nothing tells it again."""
    per_second = _read_rate(rate)

    async def act(client: Client) -> tuple[Key, str, EndpointAccess]:
        key, secret = await client.keys.create(endpoint, name=name, per_second=per_second, seconds=days * _DAY_SECONDS)
        found = {info.name: info.access for info in await client.list_endpoints()}
        return key, secret, found.get(endpoint, EndpointAccess.KEY)

    key, secret, access = run(target, act)
    if as_json:
        print_json({**_as_json(key), "key": secret})
    else:
        click.echo(secret)
    click.echo(f"Key {key.id} of endpoint {endpoint}; 'tiercel key revoke {key.id}' ends it.", err=True)
    if access is not EndpointAccess.KEY:
        click.echo(
            f"The endpoint does not ask for keys yet, as its access is {access.value}: "
            f"'tiercel endpoints access {endpoint} key' has it do so.",
            err=True,
        )


@command("tiercel key ls --endpoint digits")
@click.option("--endpoint", default="", help="Only those of this endpoint.", shell_complete=complete_endpoint)
@json_option
@target_options
def list_keys(*, endpoint: str, as_json: bool, target: Target) -> None:
    """List the tenant's keys; nothing tells a key itself."""
    found = run(target, lambda client: client.keys.list(endpoint))
    if as_json:
        print_json([_as_json(key) for key in found])
    elif found:
        print_table(("ID", "ENDPOINT", "NAME", "RATE", "MADE", "ENDS"), [_row(key) for key in found])
    else:
        click.echo("No keys; 'tiercel key create --endpoint NAME' makes one.", err=True)


@command("tiercel key revoke ID")
@click.argument("key_id", metavar="ID", help="The key's id, as 'tiercel key ls' has it.")
@target_options
def revoke(key_id: str, *, target: Target) -> None:
    """End a key for good: within about a second on every node that is connected."""
    run(target, lambda client: client.keys.revoke(key_id))
    click.echo(f"Key {key_id} is revoked.")


def _read_rate(rate: str) -> float:
    try:
        return parse_rate(rate) if rate else 0.0
    except InvalidSpecError as error:
        fail(error.message, USAGE)


def _as_json(key: Key) -> dict[str, object]:
    return {
        "id": key.id,
        "endpoint": key.endpoint,
        "name": key.name,
        "per_second": key.per_second,
        "created_at": _moment(key.created_at).isoformat(),
        "expires_at": None if key.expires_at is None else _moment(key.expires_at).isoformat(),
    }


def _row(key: Key) -> tuple[str, ...]:
    ends = "" if key.expires_at is None else _moment(key.expires_at).isoformat(timespec="minutes")
    rate = f"{key.per_second:g}/s" if key.per_second else ""
    return key.id, key.endpoint, key.name, rate, age(_moment(key.created_at)), ends


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
