"""``tiercel join``: a machine that works for a broker on another one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.session import run_to_the_end
from tiercel.broker.cli.up.addresses import read_earlier, write_addresses
from tiercel.broker.cli.up.agent import AGENT_COMMAND, AgentKeeper
from tiercel.broker.cli.up.announcement import of_joined_node
from tiercel.broker.cli.up.options import NodeOptions, Places
from tiercel.broker.cli.up.packages import check_packages
from tiercel.broker.cli.up.signals import stop_on_signals
from tiercel.broker.client.membership import join
from tiercel.broker.client.state_dir import JOINED_AS, PIN_FOLLOWS
from tiercel.broker.state_folder import prepare_state_dir, refuse_state_dir
from tiercel.broker.state_lock import up_lock
from tiercel.broker.trust.encryption import address_for_others
from tiercel.core.addresses import join_address, split_address
from tiercel.core.errors import InvalidSpecError, TiercelError, wrong_field
from tiercel.core.locks import is_held, read_name
from tiercel.core.private_files import write_private
from tiercel.core.trust.certificates import (
    MOST_PEM_BYTES,
    CertificateError,
    authorities_in,
    key_to_pem,
    make_key,
    pin_of,
    read_chain,
    read_key,
    to_pem,
)
from tiercel.core.trust.trust import is_loopback

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

    from tiercel.core.trust.join_token import JoinToken

_LOOK_SECONDS = 2.0
_EVERYWHERE = "0.0.0.0"  # noqa: S104 - not listened at
_ANSWER_SECONDS = 1.0  # from this machine itself
_JOINED_WITH = "joined_with"


def joined_as(state_dir: Path) -> str:
    """The name by which this machine joined; empty if it did not."""
    places = Places(state_dir)
    return read_earlier(places.addresses).get(JOINED_AS, "") if places.identity.exists() else ""


async def run_join(address: str, token: JoinToken, options: NodeOptions) -> bool:
    """Make this machine a node; whether it was none with this very token before.

    Args:
        address: The broker's, ``host:port``.
        token: What the broker's operator was given.
        options: Its name, and where it keeps things.

    Raises:
        TiercelError: The broker refuses, or is not the one that the token is for; the folder cannot be used; or
            packages are missing.
    """
    check_packages(options.runtimes, _tell)  # first: a token is not used up for a node whose server cannot start
    places = Places(options.state_dir)
    prepare_state_dir(places.state_dir)
    if (places.state_dir / "broker.sqlite").exists():
        raise refuse_state_dir(places.state_dir, "a broker of its own is in it")
    # The same line once more, such as after a restart of the machine, is nothing new.
    if read_earlier(places.addresses).get(_JOINED_WITH) == token.id and places.identity.exists():
        return False
    # It takes up what is written here at once, and could speak for neither of the two nodes.
    if is_held(places.agent_lock) and (running := read_name(places.agent_lock)) not in {"", options.node_id}:
        raise wrong_field(
            "node_id",
            f"the agent of node {running} runs in {places.state_dir}; give --node-id {running}, stop it first with "
            f"'tiercel down --state-dir {places.state_dir}', or choose another --state-dir",
        )
    key = _kept_key(places, token)
    identity, nodes_port = await join(address, token, options.node_id, key)
    authorities = authorities_in(read_chain(identity.chain))
    try:
        write_private(places.authority, to_pem(*authorities))
        write_private(places.identity, identity.to_file())
        addresses = {
            "nodes": join_address(split_address(address)[0], nodes_port),
            "broker_tls": address,
            "pin": token.pin,
            # Else it is of a certificate of the operator's, which has nothing to do with whom nodes believe.
            **({PIN_FOLLOWS: "yes"} if token.pin in map(pin_of, authorities) else {}),
            JOINED_AS: options.node_id,
            _JOINED_WITH: token.id,
        }
        write_addresses(places.addresses, addresses)
        places.joining.unlink(missing_ok=True)
    except OSError as error:
        raise refuse_state_dir(places.state_dir, error.strerror or str(error)) from error
    return True


def _kept_key(places: Places, token: JoinToken) -> ec.EllipticCurvePrivateKey:
    """The key to join with, kept until there is an answer: a token lets one key in, however often it asks."""
    try:
        found, _, pem = places.joining.read_bytes().partition(b"\n")
        if found == token.id.encode():
            return read_key(pem)
    except (OSError, CertificateError):
        pass  # none, or half of one
    # And room for the answer: a token is not used up where what it brings cannot be kept.
    key, probe = make_key(), places.agent_dir / "room"
    try:
        places.agent_dir.mkdir(mode=0o700, exist_ok=True)
        write_private(places.joining, token.id.encode() + b"\n" + key_to_pem(key))
        try:
            write_private(probe, bytes(2 * MOST_PEM_BYTES))
        finally:
            for path in (probe, probe.with_name(f"{probe.name}.new")):
                path.unlink(missing_ok=True)
    except OSError as error:
        raise refuse_state_dir(places.state_dir, error.strerror or str(error)) from error
    return key


async def run_node(options: NodeOptions) -> None:
    """See to the agent of a machine that joined until SIGINT or SIGTERM, then stop it.

    Raises:
        InvalidSpecError: This machine did not join from this folder.
        UnavailableError: Another one runs there, or the agent cannot start.
    """
    places = Places(options.state_dir)
    if joined_as(options.state_dir) != options.node_id:
        raise InvalidSpecError(
            f"state_dir: this machine did not join as {options.node_id!r} from {places.state_dir}; give the whole line "
            "that 'tiercel node token' prints on the broker's machine",
            field="state_dir",
        )
    broker = read_earlier(places.addresses).get("broker_tls", "")
    with up_lock(places.up_lock):
        keeper = AgentKeeper(options, _tell, AGENT_COMMAND)
        stopping = asyncio.Event()
        stop_on_signals(stopping)
        click.echo(of_joined_node(options.node_id, broker, places.state_dir))
        try:
            async with asyncio.TaskGroup() as group:
                keeping = group.create_task(keeper.keep(), name="agent keeper")
                remembering = group.create_task(remember_serving(places), name="addresses")
                await stopping.wait()
                keeping.cancel()
                remembering.cancel()
        except* TiercelError as failures:
            raise failures.exceptions[0] from None
        click.echo("Stopping.", err=True)
        await keeper.stop()


async def remember_serving(places: Places) -> None:
    """Note where the inference server listens, until cancelled: a machine that starts again has the same ports.

    Applications elsewhere know a machine by them.
    """
    while True:
        listening = read_earlier(places.serving_state)
        listening.pop("pid", None)
        known = read_earlier(places.addresses)
        told = known | {f"serving_{door}": address for door, address in listening.items()}
        if known and told != known:
            with contextlib.suppress(OSError):  # a full disk; the next look does it
                write_addresses(places.addresses, told)
        await asyncio.sleep(_LOOK_SECONDS)  # the server says so in a file, once it listens and never again


def address_towards(broker: str) -> str:
    """The address of this machine at which others reach it; empty if that is not known.

    It is the one from which this machine reaches the broker. Where that is loopback, so on the broker's own machine, it
    is the machine's first if the broker answers there, too.
    """
    try:
        # The first of a name's addresses, as whoever dials it by that name does.
        host, port = split_address(broker)
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(where)  # sends nothing
            here = str(probe.getsockname()[0]).partition("%")[0]
    except (OSError, ValueError):
        return ""
    if not is_loopback(join_address(here, port)):
        return here
    with contextlib.suppress(OSError):
        other = address_for_others(_EVERYWHERE)
        socket.create_connection((other, port), _ANSWER_SECONDS).close()
        return other
    return here


def background_command(options: NodeOptions) -> tuple[str, ...]:
    """Starts :func:`run_node` in a process of its own."""
    return sys.executable, "-P", "-m", __name__, json.dumps(asdict(options), default=str)


def _tell(sentence: str) -> None:
    click.echo(sentence, err=True)


if __name__ == "__main__":
    values = json.loads(sys.argv[1])
    values |= {"state_dir": Path(values["state_dir"])}
    values |= {name: tuple(values[name]) for name in ("runtimes", "labels", "listen_names")}
    try:
        run_to_the_end(run_node(NodeOptions(**values)))
    except click.exceptions.Exit as end:  # it has said why
        sys.exit(end.exit_code)
