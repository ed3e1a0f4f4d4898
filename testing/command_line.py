"""What tests of the command line share."""

from __future__ import annotations

from collections.abc import Callable

from typer.testing import Result

Tiercel = Callable[..., Result]
"""Runs a command with the arguments given; ``input`` is what it reads."""
