"""``tiercel dashboard``: the dashboard in a browser, signed in."""

from __future__ import annotations

import os
import webbrowser
from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.operator import as_operator, with_token
from tiercel.broker.cli.output import print_json
from tiercel.broker.cli.parameters import command, json_option, target_options

if TYPE_CHECKING:
    from tiercel.broker.cli.session import Target
    from tiercel.broker.client.dashboard import SignInLink


@command("tiercel dashboard", "tiercel dashboard --operator --no-open")
@click.option("--operator", is_flag=True, help="As the broker's operator: nodes, and who changed what.")
@click.option("--no-open", is_flag=True, help="Print the link and open nothing.")
@json_option
@target_options
def dashboard(*, operator: bool, no_open: bool, as_json: bool, target: Target) -> None:
    """Open the dashboard in a browser, signed in by a link that is good once and for two minutes."""
    link = _ask(target, operator=operator)
    # On the broker's own machine it needs no certificate that a browser would have to be told of.
    url = link.url_elsewhere if target.broker and link.url_elsewhere else link.url
    if as_json:
        print_json({"url": url, "expires_at": link.expires_at.isoformat()})
        return
    click.echo(url)
    if not no_open and _has_browser():
        webbrowser.open(url)


def _ask(target: Target, *, operator: bool) -> SignInLink:
    from tiercel.broker.client.dashboard import create_sign_in_link
    from tiercel.broker.client.given_token import given_token
    from tiercel.broker.client.state_dir import default_state_dir, read_token

    if operator:
        return as_operator(target.state_dir, target.broker, create_sign_in_link)
    folder = target.state_dir or default_state_dir()
    own = given_token(os.environ)
    return with_token(folder, target.broker, lambda: own or read_token(folder, target.tenant), create_sign_in_link)


def _has_browser() -> bool:
    """Whether there is a screen: a browser of the terminal would take the terminal."""
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
