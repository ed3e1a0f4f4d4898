"""``tiercel token``: tokens that the operator gives out beside the one that each tenant has by itself."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from tiercel.broker.cli.operator import as_operator
from tiercel.broker.cli.output import age, print_json, print_table
from tiercel.broker.cli.parameters import broker_option, command, json_option, state_dir_option
from tiercel.core.issued_tokens import DAY_SECONDS, DEFAULT_SECONDS, LONGEST_SECONDS, IssuedToken
from tiercel.core.roles import Role

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@command("tiercel token create alice --tenant vision --role submitter --days 30")
@click.argument("name", help="What it is for, such as the name of a person or a program.")
@click.option("--tenant", default="", help="Whose things it is about; none for an operator's.")
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    default=Role.VIEWER.value,
    show_default=True,
    help="viewer reads; submitter also submits and changes; operator says who may what.",
)
@click.option(
    "--days",
    type=click.FloatRange(0, LONGEST_SECONDS / DAY_SECONDS, min_open=True),
    default=DEFAULT_SECONDS / DAY_SECONDS,
    show_default=True,
    help="How long it is good for; 366 at most.",
)
@json_option
@state_dir_option
@broker_option
def create(
    name: str, *, tenant: str, role: str, days: float, as_json: bool, state_dir: Path | None, broker: str
) -> None:
    """Make a token and print it: nobody is told it again."""
    from tiercel.broker.client.tokens import create_token

    token, issued = as_operator(
        state_dir,
        broker,
        lambda connection: create_token(connection, name, tenant=tenant, role=Role(role), seconds=days * DAY_SECONDS),
    )
    if as_json:
        print_json({"token": token, **_shown(issued)})
        return
    click.echo(token)
    variable = "TIERCEL_OPERATOR_TOKEN" if role == Role.OPERATOR.value else "TIERCEL_TOKEN"
    click.echo(
        f"Good until {_moment(issued.expires_at)}, and not shown again. It goes into {variable}; "
        f"'tiercel token revoke {issued.id}' takes it back.",
        err=True,
    )


@command("tiercel token ls")
@json_option
@state_dir_option
@broker_option
def ls(*, as_json: bool, state_dir: Path | None, broker: str) -> None:
    """List tokens; those that ran out or were revoked for a month."""
    from tiercel.broker.client.tokens import list_tokens

    found = as_operator(state_dir, broker, list_tokens)
    if as_json:
        print_json([_shown(token) for token in found])
    elif found:
        print_table(("ID", "NAME", "TENANT", "ROLE", "MADE", "GOOD UNTIL", "STATE"), [_row(token) for token in found])
    else:
        click.echo("No tokens; 'tiercel token create NAME --tenant TENANT' makes one.", err=True)


@command("tiercel token revoke ID")
@click.argument("token_id", metavar="ID", help="As 'tiercel token ls' lists it.")
@state_dir_option
@broker_option
def revoke(token_id: str, *, state_dir: Path | None, broker: str) -> None:
    """Take a token back: its calls are refused from now on, and its streams end within a second."""
    from tiercel.broker.client.tokens import revoke_token

    token = as_operator(state_dir, broker, lambda connection: revoke_token(connection, token_id))
    click.echo(f"Token {token.id} ({token.name}) is good no more.")


def _shown(token: IssuedToken) -> Mapping[str, Any]:
    return {
        "id": token.id,
        "name": token.name,
        "tenant": token.tenant,
        "role": token.role.value,
        "state": _state(token),
        "created_at": _moment(token.created_at),
        "expires_at": _moment(token.expires_at),
        "revoked_at": None if token.revoked_at is None else _moment(token.revoked_at),
    }


def _row(token: IssuedToken) -> tuple[str, ...]:
    made = age(datetime.fromtimestamp(token.created_at, UTC))
    return (token.id, token.name, token.tenant or "-", token.role, made, _moment(token.expires_at), _state(token))


def _state(token: IssuedToken) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "good" if token.is_usable(time.time()) else "ran out"


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
