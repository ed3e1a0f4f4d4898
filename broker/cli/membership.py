"""Commands about which machines are nodes: ``join``, ``node token``, ``node remove``."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.operator import as_operator
from tiercel.broker.cli.output import print_json
from tiercel.broker.cli.parameters import broker_option, command, json_option, log_format_option, state_dir_option
from tiercel.broker.cli.session import fail, run_to_the_end
from tiercel.core.errors import TiercelError

if TYPE_CHECKING:
    from typing import Any, TypeVar

    from tiercel.broker.client.connection import Connection
    from tiercel.core.trust.join_token import JoinToken

    T = TypeVar("T")

_TOKEN_VARIABLE = "TIERCEL_JOIN_TOKEN"  # noqa: S105 - a variable's name
_TOKEN_BYTES = 4096


@command("tiercel node token --node-id n2")
@click.option("--node-id", default="", help="The only name that the machine may take; any when left out.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=15.0,
    show_default=True,
    help="How long the token is good for.",
)
@click.option(
    "--listen-name",
    "listen_names",
    multiple=True,
    metavar="NAME",
    help="A DNS name that the machine's certificate has as well, for those who ask its models; repeatable, 8 at most.",
)
@json_option
@state_dir_option
@broker_option
def token_(
    *,
    node_id: str,
    minutes: float,
    listen_names: tuple[str, ...],
    as_json: bool,
    state_dir: Path | None,
    broker: str,
) -> None:
    """Print the line that makes another machine a node of this broker; it works once."""
    from tiercel.broker.client.membership import create_join_token

    line = as_operator(
        state_dir, broker, lambda connection: create_join_token(connection, node_id, minutes * 60, listen_names)
    )
    expires_at = line.expires_at.isoformat(timespec="seconds")
    if as_json:
        print_json({"address": line.address, "token": line.token, "expires_at": expires_at})
        return
    named = f" --node-id {node_id}" if node_id else ""
    click.echo(f"tiercel join {line.address} --token {line.token}{named}")
    click.echo(
        f"Good for one machine, until {expires_at}. Others there can read command lines: 'tiercel join {line.address} "
        f"--token -' asks for the token instead.",
        err=True,
    )


@command("tiercel node remove n2")
@click.argument("node_id", help="The node's name.")
@state_dir_option
@broker_option
def remove_(node_id: str, *, state_dir: Path | None, broker: str) -> None:
    """Take a machine that joined off the list: it is cut off within a second, and refused from then on."""
    from tiercel.broker.client.draining import only_on
    from tiercel.broker.client.membership import remove_node
    from tiercel.broker.client.status import cluster_status

    async def remove(connection: Connection) -> tuple[str, ...]:
        status = await cluster_status(connection)
        await remove_node(connection, node_id)
        return only_on(status, node_id)

    unanswered = as_operator(state_dir, broker, remove)
    click.echo(f"Node {node_id} is no node any more.")
    if unanswered:
        click.echo(
            f"It alone answered for {', '.join(unanswered)}: nobody does now, unless the artefact store has its model. "
            "'tiercel node drain NODE --migrate --wait' before 'remove' has others take over."
        )


@command("tiercel join broker.example.com:7443 --token -")
@click.argument("broker", metavar="BROKER", help="The broker, HOST:PORT, as in the line.")
@click.option(
    "--token",
    default="",
    envvar=_TOKEN_VARIABLE,
    show_envvar=True,
    help="From 'tiercel node token'; '-' asks for it, so that nobody else on this machine can read it.",
)
@click.option("--token-file", type=click.Path(path_type=Path), help="File with the token, instead.")
@click.option("--node-id", default="", help="Name of this node.", show_default="this machine's name")
@state_dir_option
@click.option(
    "--runtime",
    "runtimes",
    multiple=True,
    help="process or docker, the preferred first; default: both, if an engine answers.",
)
@click.option("--cpu-cores", type=float, help="Cores that jobs may use; all when left out.")
@click.option(
    "--accelerators", default="", help="auto for all there are (the default), none, or ids as nvidia-smi -L has them."
)
@click.option(
    "--label", "labels", multiple=True, metavar="KEY=VALUE", help="What jobs may ask for by node_labels; repeatable."
)
@click.option(
    "--advertise",
    default="",
    help="Address of this machine at which others may ask its models; none for nobody.",
    show_default="the one from which it reaches the broker",
)
@click.option(
    "--listen-name",
    "listen_names",
    multiple=True,
    help="A name by which others call this machine beside that; repeatable.",
)
@click.option("--tls-http-port", type=int, default=0, help="Port there for requests over HTTP; 0 for any free one.")
@click.option("--tls-grpc-port", type=int, default=0, help="Port there for requests over gRPC; 0 for any free one.")
@log_format_option
@click.option("--detach", "-d", is_flag=True, help="Run in the background.")
@click.option("--start/--no-start", default=True, help="Whether the agent is started as well.")
def join(
    broker: str,
    *,
    token: str,
    token_file: Path | None,
    node_id: str,
    state_dir: Path | None,
    advertise: str,
    detach: bool,
    start: bool,
    **asked: Any,
) -> None:
    """Make this machine a node of a broker on another one, and run its agent until Ctrl-C or 'tiercel down'.

    The key is made here and never leaves.
    The same line once more starts the agent again.
    """
    if token and token_file:
        fail("Give --token or --token-file, not both.", 2)
    from tiercel.broker.cli.up.detached import start_detached
    from tiercel.broker.cli.up.joined import background_command, joined_as, run_join, run_node
    from tiercel.broker.cli.up.options import NodeOptions
    from tiercel.broker.client.state_dir import default_state_dir

    folder = (state_dir or default_state_dir()).absolute()
    options = NodeOptions(
        state_dir=folder,
        node_id=node_id or joined_as(folder) or socket.gethostname(),
        advertise=_advertised(advertise, broker),
        **asked,  # the other options bear the names of its fields
    )
    given = _read_token(token, token_file)
    if given is not None:
        if run_to_the_end(run_join(broker, given, options)):
            click.echo(f"This machine is node {options.node_id} of the broker at {broker}.")
    elif not joined_as(folder):
        fail(f"Give the token that 'tiercel node token' printed: --token -, --token-file, or {_TOKEN_VARIABLE}.", 2)
    if start and detach:
        click.echo(run_to_the_end(start_detached(options, background_command(options))))
    elif start:
        run_to_the_end(run_node(options))


def _advertised(given: str, broker: str) -> str:
    from tiercel.broker.cli.up.joined import address_towards
    from tiercel.core.addresses import require_host

    if given == "none":
        return ""
    try:
        return require_host("advertise", given) if given else address_towards(broker)
    except TiercelError as error:
        fail(error.message, 2)


def _read_token(token: str, file: Path | None) -> JoinToken | None:
    from tiercel.core.trust.join_token import JoinToken

    try:
        if token == "-":  # noqa: S105 - stands for standard input
            text = click.prompt("Token", hide_input=True) if sys.stdin.isatty() else sys.stdin.read(_TOKEN_BYTES)
        elif file is not None:
            with file.open(encoding="utf-8") as opened:
                text = opened.read(_TOKEN_BYTES)
        else:
            text = token
        return JoinToken.parse(text) if text.strip() else None
    except TiercelError as error:
        fail(error.message)
    except (OSError, UnicodeDecodeError) as error:
        fail(f"The token cannot be read ({error}).")
