"""How people name a version of an endpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tiercel.broker.cli.completion import complete_endpoint
from tiercel.broker.cli.session import fail


def model_argument(name: str = "model") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An argument ``ENDPOINT[:VERSION]``."""
    return click.argument(
        name,
        metavar="ENDPOINT[:VERSION]",
        help="The version; the one that answers when left out.",
        shell_complete=complete_endpoint,
    )


def model_name(text: str) -> tuple[str, int | None]:
    """The endpoint and the version of an ``ENDPOINT[:VERSION]``; None where that is left out."""
    name, colon, written = text.partition(":")
    return name, version_number(written, f"{name}:2") if colon else None


def version_number(text: str, example: str = "2") -> int:
    """The number of a version, as it was typed."""
    if not (text.isascii() and text.isdecimal() and len(text) < 19 and int(text)):  # of 64 bits
        fail(f"VERSION: {text[:32]!r} is no version; give a number such as {example}.")
    return int(text)
