"""``tiercel secret``: values that jobs find in their environment and that nobody is ever told."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated

import typer

from tiercel.broker.cli.output import age, print_json, print_table
from tiercel.broker.cli.session import USAGE, AsJson, BrokerAddress, StateDir, Target, TenantName, fail, run
from tiercel.core.secrets import MAX_VALUE_BYTES

secrets = typer.Typer(no_args_is_help=True)
_Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the variable that holds it.")]


@secrets.callback()
def _group() -> None:
    """Keep secrets, which jobs ask for by name: 'secrets: [WANDB_KEY]' in their specs."""


@secrets.command("set")
def set_secret(
    name: _Name, *, state_dir: StateDir = None, broker: BrokerAddress = "", tenant: TenantName = "default"
) -> None:
    """Keep a value: what standard input has, without its last line's end, or what you type unseen."""
    value = _typed(name) if sys.stdin.isatty() else _piped()
    run(Target(state_dir, broker, tenant), lambda client: client.secrets.set(name, value))
    typer.echo(f"Secret {name} is set.")


@secrets.command("list")
def list_secrets(
    *, as_json: AsJson = False, state_dir: StateDir = None, broker: BrokerAddress = "", tenant: TenantName = "default"
) -> None:
    """List the names of the tenant's secrets; nothing tells a value."""
    found = run(Target(state_dir, broker, tenant), lambda client: client.secrets.list())
    times = {secret.name: datetime.fromtimestamp(secret.set_at, UTC) for secret in found}
    if as_json:
        print_json([{"name": name, "set_at": at.isoformat()} for name, at in times.items()])
    elif times:
        print_table(("NAME", "SET"), [(name, age(at)) for name, at in times.items()])
    else:
        typer.echo("No secrets; 'tiercel secret set NAME' keeps one.", err=True)


@secrets.command("remove")
def remove_secret(
    name: _Name, *, state_dir: StateDir = None, broker: BrokerAddress = "", tenant: TenantName = "default"
) -> None:
    """Forget a secret; jobs that ask for it cannot start any more."""
    run(Target(state_dir, broker, tenant), lambda client: client.secrets.remove(name))
    typer.echo(f"Secret {name} is removed.")


def _typed(name: str) -> str:
    value: str = typer.prompt(f"Value of {name}", hide_input=True, confirmation_prompt=True)
    return value


def _piped() -> str:
    content = sys.stdin.buffer.read(MAX_VALUE_BYTES + 3)
    try:
        return content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        fail("The value is not text in UTF-8; encode it, as base64 for example.", USAGE)
