"""The command ``tiercel login``."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.parameters import command
from tiercel.broker.cli.session import run_to_the_end
from tiercel.core.errors import UnavailableError, wrong_field
from tiercel.core.private_files import write_private

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tiercel.broker.cli.login.device import DeviceSignIn, SignedIn

# Of the time for which a token is good; the rest is for a provider that does not answer at once.
RENEWED_AFTER = 2 / 3
LEAST_SECONDS = 10.0


@command("tiercel login --issuer https://id.example.com --client-id c --token-file t")
@click.option("--issuer", required=True, help="URL of the provider, as in 'tiercel up --oidc-issuer'.")
@click.option("--client-id", required=True, help="What the provider calls this program; also --oidc-audience.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    required=True,
    envvar="TIERCEL_TOKEN_FILE",
    show_envvar=True,
    help="Where the token goes; commands read it there.",
)
@click.option(
    "--scope",
    default="openid",
    show_default=True,
    help="What is asked for; some providers want offline_access for --keep.",
)
@click.option("--keep", is_flag=True, help="Go on until Ctrl-C, and renew the token in time.")
def login(*, issuer: str, client_id: str, token_file: Path, scope: str, keep: bool) -> None:
    """Sign in at the provider that the broker takes tokens of: a browser anywhere is given a code."""
    run_to_the_end(_login(issuer, client_id, scope, token_file, keep=keep))


async def _login(issuer: str, client_id: str, scope: str, token_file: Path, *, keep: bool) -> None:
    # What asks over HTTP takes a moment to import, which no other command needs.
    from tiercel.broker.cli.login.device import DeviceSignIn

    sign_in = DeviceSignIn(issuer, client_id, scope)
    invitation = await sign_in.invite()
    click.echo(f"Open {invitation.address} and enter the code {invitation.code}", err=True)
    signed_in = await sign_in.wait(invitation)
    _write(token_file, signed_in)
    click.echo(f"You are signed in. For other commands: export TIERCEL_TOKEN_FILE={token_file.absolute()}", err=True)
    if keep:
        await keep_fresh(sign_in, signed_in, token_file)


async def keep_fresh(
    sign_in: DeviceSignIn,
    signed_in: SignedIn,
    token_file: Path,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    now: Callable[[], float] = time.time,
) -> None:
    """Put the next token into the file before the one that is there runs out, for ever.

    Args:
        sign_in: Asks the provider.
        signed_in: What it gave last.
        token_file: Where tokens go.
        sleep: Lets seconds pass.
        now: Seconds since the Unix epoch.

    Raises:
        NotAuthenticatedError: The provider renews it no more.
        InvalidSpecError: It gave nothing to renew it by, or the file cannot be written.
    """
    while True:
        if not signed_in.renewal:
            raise wrong_field("scope", "the provider gave nothing to renew the token by; try 'openid offline_access'")
        await sleep(max(LEAST_SECONDS, (signed_in.expires_at - now()) * RENEWED_AFTER))
        try:
            signed_in = await sign_in.renew(signed_in)
        except UnavailableError as error:
            click.echo(f"The token is not renewed yet: {error.message}", err=True)
            continue
        _write(token_file, signed_in)


def _write(token_file: Path, signed_in: SignedIn) -> None:
    try:
        write_private(token_file, f"{signed_in.token}\n".encode())
        until = datetime.fromtimestamp(signed_in.expires_at, UTC)
    except (OSError, ValueError, OverflowError) as error:
        raise wrong_field("token_file", f"{token_file} cannot be written ({error}); choose another") from error
    click.echo(f"A token is in {token_file}, good until {until:%Y-%m-%d %H:%M:%S} UTC", err=True)
