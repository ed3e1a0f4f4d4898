"""``tiercel key`` and ``tiercel endpoints access``: who may ask endpoints, and keys for who is nobody's tenant."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tiercel.broker.cli.completion import complete_endpoint
from tiercel.broker.cli.endpoints import endpoints
from tiercel.broker.cli.output import age, print_json, print_table
from tiercel.broker.cli.session import USAGE, AsJson, BrokerAddress, StateDir, Target, TenantName, fail, run
from tiercel.core.endpoint_access import EndpointAccess, Key
from tiercel.core.errors import InvalidSpecError
from tiercel.core.rates import parse_rate

if TYPE_CHECKING:
    from tiercel.broker.client import Client

keys = typer.Typer(no_args_is_help=True)
_DAY_SECONDS = 86_400.0
_Endpoint = Annotated[str, typer.Option("--endpoint", help="The endpoint's name.", autocompletion=complete_endpoint)]


@keys.callback()
def _group() -> None:
    """Make and end keys of endpoints, for programs that are to ask them without being a tenant."""


@keys.command()
def create(
    *,
    endpoint: _Endpoint,
    rate: Annotated[
        str, typer.Option(help="How often it may ask: 100/s, 30/m or 5000/h. Any number when left out.")
    ] = "",
    days: Annotated[float, typer.Option(help="How long it is good; for ever when left out.")] = 0.0,
    name: Annotated[str, typer.Option(help="A word for it, such as who gets it.")] = "",
    as_json: AsJson = False,
    state_dir: StateDir = None,
    broker: BrokerAddress = "",
    tenant: TenantName = "default",
) -> None:
    """Print a new key, this once; nothing tells it again."""
    per_second = _read_rate(rate)

    async def act(client: Client) -> tuple[Key, str, EndpointAccess]:
        key, secret = await client.keys.create(endpoint, name=name, per_second=per_second, seconds=days * _DAY_SECONDS)
        found = {info.name: info.access for info in await client.list_endpoints()}
        return key, secret, found.get(endpoint, EndpointAccess.KEY)

    key, secret, access = run(Target(state_dir, broker, tenant), act)
    if as_json:
        print_json({**_as_json(key), "key": secret})
    else:
        typer.echo(secret)
    typer.echo(f"Key {key.id} of endpoint {endpoint}; 'tiercel key revoke {key.id}' ends it.", err=True)
    if access is not EndpointAccess.KEY:
        typer.echo(
            f"The endpoint does not ask for keys yet, as its access is {access.value}: "
            f"'tiercel endpoints access {endpoint} key' has it do so.",
            err=True,
        )


@keys.command("ls")
def list_keys(
    *,
    endpoint: Annotated[
        str, typer.Option("--endpoint", help="Only those of this endpoint.", autocompletion=complete_endpoint)
    ] = "",
    as_json: AsJson = False,
    state_dir: StateDir = None,
    broker: BrokerAddress = "",
    tenant: TenantName = "default",
) -> None:
    """List the tenant's keys; nothing tells a key itself."""
    found = run(Target(state_dir, broker, tenant), lambda client: client.keys.list(endpoint))
    if as_json:
        print_json([_as_json(key) for key in found])
    elif found:
        print_table(("ID", "ENDPOINT", "NAME", "RATE", "MADE", "ENDS"), [_row(key) for key in found])
    else:
        typer.echo("No keys; 'tiercel key create --endpoint NAME' makes one.", err=True)


@keys.command()
def revoke(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The key's id, as 'tiercel key ls' has it.")],
    *,
    state_dir: StateDir = None,
    broker: BrokerAddress = "",
    tenant: TenantName = "default",
) -> None:
    """End a key for good: within about a second on every node that is connected."""
    run(Target(state_dir, broker, tenant), lambda client: client.keys.revoke(key_id))
    typer.echo(f"Key {key_id} is revoked.")


@endpoints.command("access")
def set_access(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The endpoint's name.", autocompletion=complete_endpoint)],
    who: Annotated[EndpointAccess, typer.Argument(metavar="public|tenant|key", help="Who may ask it.")],
    *,
    state_dir: StateDir = None,
    broker: BrokerAddress = "",
    tenant: TenantName = "default",
) -> None:
    """Say who may ask an endpoint: everybody, its tenant, or who has one of its keys."""
    run(Target(state_dir, broker, tenant), lambda client: client.keys.set_access(name, who))
    typer.echo(f"Endpoint {name} is for {_WHO[who]}.")


_WHO = {
    EndpointAccess.PUBLIC: "whoever reaches it",
    EndpointAccess.TENANT: "its tenant, and for whoever is on the machine that it answers on",
    EndpointAccess.KEY: "whoever has one of its keys",
}


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
