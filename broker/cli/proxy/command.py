"""``tiercel proxy config``."""

from __future__ import annotations

import os
import re
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.exit_codes import USAGE
from tiercel.broker.cli.parameters import broker_option, command, state_dir_option
from tiercel.broker.cli.session import fail, run_to_the_end

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tiercel.broker.cli.proxy.configuration import Front
    from tiercel.broker.cli.proxy.keeper import Source
    from tiercel.broker.client.connection import Connection
    from tiercel.core.trust.trust import Trust


_SECONDS = 1.0
_LAST_PORT = 65_535
# Nothing that HAProxy's file would read otherwise.
_PATH = re.compile(r"/[A-Za-z0-9._/@+-]*")
_BIND = re.compile(r"((?:[0-9]{1,3}\.){3}[0-9]{1,3}):([0-9]{1,5})")
# It becomes a part of a file's name.
_TENANT = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


@command("tiercel proxy config --dir /etc/haproxy/tiercel --watch")
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Where to put the files."
)
@click.option("--http", default="127.0.0.1:8080", show_default=True, help="Where it answers REST, HOST:PORT.")
@click.option("--grpc", default="127.0.0.1:8081", show_default=True, help="Where it answers gRPC, HOST:PORT.")
@click.option(
    "--certificate",
    type=click.Path(path_type=Path),
    help="Certificate and key in one file, PEM; needed beyond this machine.",
)
@click.option("--name", multiple=True, help="A name by which applications call it; repeatable.")
@click.option("--watch", is_flag=True, help="Keep it up to date until Ctrl-C.")
@click.option(
    "--tenant",
    multiple=True,
    envvar="TIERCEL_TENANT",
    show_envvar=True,
    help="Whose endpoints; repeatable. The environment's TIERCEL_TOKEN or TIERCEL_TOKEN_FILE is for one.",
    show_default="default",
)
@click.option(
    "--all-tenants",
    is_flag=True,
    help="Those of all tenants whose tokens the state directory has, whatever --tenant says.",
)
@state_dir_option
@broker_option
def config(
    *,
    folder: Path,
    http: str,
    grpc: str,
    certificate: Path | None,
    name: tuple[str, ...],
    watch: bool,
    tenant: tuple[str, ...],
    all_tenants: bool,
    state_dir: Path | None,
    broker: str,
) -> None:
    """Write an HAProxy's configuration for tenants' endpoints, from who answers for them now.

    HAProxy checks it first, and what is of no use is not put in place.
    """
    from tiercel.broker.cli.proxy.configuration import Front

    front = Front(folder.absolute(), http, grpc, certificate and certificate.absolute(), tuple(name or ()))
    _check(front)
    run_to_the_end(_run(front, state_dir, broker, () if all_tenants else tuple(tenant or ["default"]), watch=watch))


def _check(front: Front) -> None:
    from tiercel.core.trust.trust import is_loopback

    for option, address in (("--http", front.http), ("--grpc", front.grpc)):
        if not _BIND.fullmatch(address) or int(address.rpartition(":")[2]) > _LAST_PORT:
            fail(f"{option}: {address!r} is not an IPv4 address and a port; give one such as 127.0.0.1:8080.", USAGE)
        if front.certificate is None and not is_loopback(address):
            fail(f"{option}: {address} is for other machines, which ask by TLS; give --certificate as well.", USAGE)
    for path in filter(None, (front.folder, front.certificate)):
        if not _PATH.fullmatch(str(path)):
            fail(f"{path}: HAProxy's file takes a-z, A-Z, 0-9 and . _ / @ + - of paths; choose another.", USAGE)
    for each in front.names:
        if not _HOST.fullmatch(each):
            fail(f"--name: {each!r} is no host's name; give one such as models.example.com.", USAGE)


async def _run(front: Front, state_dir: Path | None, broker: str, tenants: tuple[str, ...], *, watch: bool) -> None:
    from tiercel.broker.cli.proxy.haproxy import Haproxy
    from tiercel.broker.cli.proxy.keeper import Keeper
    from tiercel.broker.client.state_dir import default_state_dir, read_broker
    from tiercel.core.errors import UnavailableError
    from tiercel.core.trust.trust import Trust

    folder = state_dir or default_state_dir()
    tokens = _tokens(folder, tenants)
    address, trust = (broker, Trust.from_environment(os.environ)) if broker else read_broker(folder)
    try:
        front.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(f"{front.folder} cannot be made ({error.strerror}); choose another") from error
    async with AsyncExitStack() as stack:
        sources = {
            tenant: _source(await stack.enter_async_context(_connected(address, token, trust)))
            for tenant, token in tokens.items()
        }
        keeper = Keeper(front, Haproxy(front.folder), sources)
        if watch:
            await keeper.watch(_SECONDS, lambda sentence: click.echo(sentence, err=True))
        else:
            click.echo(await keeper.renew() or f"{keeper.file} is up to date")


def _tokens(folder: Path, tenants: tuple[str, ...]) -> dict[str, str | Path]:
    """The tokens of tenants, or of all that there are where none is named."""
    from tiercel.broker.client.given_token import given_token
    from tiercel.broker.client.state_dir import read_token, read_tokens
    from tiercel.core.errors import wrong_field

    given = given_token(os.environ)
    if given and len(tenants) != 1:
        raise wrong_field(
            "tenant", "the environment has the token of one; unset it, and those of the state directory count"
        )
    named = tenants or tuple(read_tokens(folder))
    for each in named:
        if not _TENANT.fullmatch(each):
            raise wrong_field("tenant", f"{each!r} is no tenant's name")
    return {each: given or read_token(folder, each) for each in named}


def _source(connection: Connection) -> Source:
    from tiercel.broker.cli.proxy.keeper import Source
    from tiercel.broker.client.access import certify
    from tiercel.broker.client.addresses import list_routes
    from tiercel.core.trust.trust import is_loopback

    is_elsewhere = not is_loopback(connection.address)
    return Source(lambda: list_routes(connection, is_elsewhere=is_elsewhere), lambda: certify(connection))


@asynccontextmanager
async def _connected(address: str, token: str | Path, trust: Trust) -> AsyncIterator[Connection]:
    from tiercel.broker.client.connection import Connection
    from tiercel.broker.client.options import ClientOptions

    connection = await Connection.open(address, token, ClientOptions(), trust)
    try:
        yield connection
    finally:
        await connection.close()
