"""Lines that say one thing each, as people read them."""

from __future__ import annotations

import shutil

import click

from tiercel.broker.cli.output import is_terminal

# Of what stands at the beginning of a line: what it is about.
LABEL_WIDTH = 10


def say(line: str, indent: int = 0) -> None:
    """Print a line; see :func:`wrapped`."""
    click.echo(wrapped(line, indent))


def wrapped(line: str, indent: int = 0) -> str:
    """A line as a terminal shows it, where a long one goes on below, between words.

    Args:
        line: Without a line break.
        indent: Columns that are left free where it goes on.
    """
    width = shutil.get_terminal_size().columns
    if not is_terminal() or len(line) <= width:
        return line
    import textwrap

    return textwrap.fill(line, width, subsequent_indent=" " * indent, break_on_hyphens=False)
