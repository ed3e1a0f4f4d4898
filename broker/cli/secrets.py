"""``tiercel secret``: values that jobs find in their environment and that nobody is ever told."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import click

from tiercel.broker.cli.exit_codes import USAGE
from tiercel.broker.cli.output import age, print_json, print_table
from tiercel.broker.cli.parameters import command, json_option, target_options
from tiercel.broker.cli.session import Target, fail, run
from tiercel.core.secrets import MAX_VALUE_BYTES


@command("tiercel secret set WANDB_KEY < key.txt")
@click.argument("name", metavar="NAME", help="The name of the variable that holds it.")
@target_options
def set_secret(name: str, *, target: Target) -> None:
    """Keep a value: what standard input has, without its last line's end, or what you type unseen."""
    value = _typed(name) if sys.stdin.isatty() else _piped()
    run(target, lambda client: client.secrets.set(name, value))
    click.echo(f"Secret {name} is set.")


@command("tiercel secret ls")
@json_option
@target_options
def list_secrets(*, as_json: bool, target: Target) -> None:
    """List the names of the tenant's secrets; nothing tells a value."""
    found = run(target, lambda client: client.secrets.list())
    times = {secret.name: datetime.fromtimestamp(secret.set_at, UTC) for secret in found}
    if as_json:
        print_json([{"name": name, "set_at": at.isoformat()} for name, at in times.items()])
    elif times:
        print_table(("NAME", "SET"), [(name, age(at)) for name, at in times.items()])
    else:
        click.echo("No secrets; 'tiercel secret set NAME' keeps one.", err=True)


@command("tiercel secret remove WANDB_KEY")
@click.argument("name", metavar="NAME", help="The name of the variable that holds it.")
@target_options
def remove_secret(name: str, *, target: Target) -> None:
    """Forget a secret; jobs that ask for it cannot start any more."""
    run(target, lambda client: client.secrets.remove(name))
    click.echo(f"Secret {name} is removed.")


def _typed(name: str) -> str:
    value: str = click.prompt(f"Value of {name}", hide_input=True, confirmation_prompt=True)
    return value


def _piped() -> str:
    content = sys.stdin.buffer.read(MAX_VALUE_BYTES + 3)
    try:
        return content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        fail("The value is not text in UTF-8; encode it, as base64 for example.", USAGE)
