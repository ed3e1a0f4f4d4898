"""``tiercel top``: nodes, jobs and endpoints on one screen, drawn anew every second."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.output import print_json, print_table
from tiercel.broker.cli.parameters import command, json_option, target_options
from tiercel.broker.cli.session import Target, run

if TYPE_CHECKING:
    import asyncio

    from tiercel.broker.cli.top_view import Picture
    from tiercel.broker.client import Client

_SECONDS = 1.0


@command("tiercel top", "tiercel top --once --json")
@click.option("--once", is_flag=True, help="Print it once and end, as happens where nobody watches.")
@json_option
@target_options
def top(*, once: bool, as_json: bool, target: Target) -> None:
    """Watch nodes, jobs that have not finished, and endpoints.

    Keys: q ends it, s sorts jobs otherwise, f shows only those that
    run, or only those that wait.
    """
    live = sys.stdout.isatty() and sys.stdin.isatty() and not (once or as_json)
    run(target, _watch if live else lambda client: _print(client, as_json=as_json))


async def _print(client: Client, *, as_json: bool) -> None:
    picture = await _look(client)
    if as_json:
        print_json(picture.to_json())
        return
    for number, (columns, rows) in enumerate(picture.tables()):
        if number:
            click.echo()
        print_table(columns, rows)


async def _look(client: Client) -> Picture:
    from tiercel.broker.cli.top_view import Picture

    return Picture(await client.list_nodes(), await client.list_jobs(active_only=True), await client.list_endpoints())


async def _watch(client: Client) -> None:
    import asyncio

    from rich.live import Live

    from tiercel.broker.cli.top_view import Choice, Screen
    from tiercel.core.errors import UnavailableError

    choice, picture, problem = Choice(), await _look(client), ""
    keys: asyncio.Queue[str] = asyncio.Queue(maxsize=16)
    with _reading(keys), Live(Screen(picture, choice), screen=True, auto_refresh=False) as live:
        while True:
            live.update(Screen(picture, choice, problem), refresh=True)
            try:
                async with asyncio.timeout(_SECONDS):
                    key = await keys.get()
            except TimeoutError:
                try:
                    picture, problem = await _look(client), ""
                except UnavailableError as error:  # what is on the screen stays, and it is asked again
                    problem = error.message
                continue
            if key in {"q", "\x03", "\x04", "\x1b"}:
                return
            choice = choice.after(key)


@contextmanager
def _reading(keys: asyncio.Queue[str]) -> Iterator[None]:
    """Keys go into the queue as they are pressed, unseen; the terminal is left as it was."""
    import asyncio
    import os
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def read() -> None:
        pressed = os.read(descriptor, 16).decode(errors="replace")
        # An arrow is three characters at once, and none of them a key of ours; more than are handled are dropped.
        if len(pressed) == 1 and not keys.full():
            keys.put_nowait(pressed)
        elif not pressed:  # the terminal is gone
            loop.remove_reader(descriptor)

    loop = asyncio.get_running_loop()
    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, read)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
