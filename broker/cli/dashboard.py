"""``tiercel dashboard``: the dashboard in a browser, signed in."""

from __future__ import annotations

import os
import webbrowser
from typing import TYPE_CHECKING, Annotated

import typer

from tiercel.broker.cli.operator import as_operator, with_token
from tiercel.broker.cli.output import print_json
from tiercel.broker.cli.session import AsJson, BrokerAddress, StateDir, TenantName

if TYPE_CHECKING:
    from pathlib import Path

    from tiercel.broker.client.dashboard import SignInLink


def dashboard(
    *,
    operator: Annotated[
        bool, typer.Option("--operator", help="As the broker's operator: nodes, and who changed what.")
    ] = False,
    no_open: Annotated[bool, typer.Option("--no-open", help="Print the link and open nothing.")] = False,
    as_json: AsJson = False,
    state_dir: StateDir = None,
    broker: BrokerAddress = "",
    tenant: TenantName = "default",
) -> None:
    """Open the dashboard in a browser, signed in by a link that is good once and for two minutes."""
    link = _ask(state_dir, broker, tenant, operator=operator)
    # On the broker's own machine it needs no certificate that a browser would have to be told of.
    url = link.url_elsewhere if broker and link.url_elsewhere else link.url
    if as_json:
        print_json({"url": url, "expires_at": link.expires_at.isoformat()})
        return
    typer.echo(url)
    if not no_open and _has_browser():
        webbrowser.open(url)


def _ask(state_dir: Path | None, broker: str, tenant: str, *, operator: bool) -> SignInLink:
    from tiercel.broker.client.dashboard import create_sign_in_link
    from tiercel.broker.client.given_token import given_token
    from tiercel.broker.client.state_dir import default_state_dir, read_token

    if operator:
        return as_operator(state_dir, broker, create_sign_in_link)
    folder = state_dir or default_state_dir()
    own = given_token(os.environ)
    return with_token(folder, broker, lambda: own or read_token(folder, tenant), create_sign_in_link)


def _has_browser() -> bool:
    """Whether there is a screen: a browser of the terminal would take the terminal."""
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
