"""The command line, ``tiercel``.

Only typer is imported to find out what is asked for; each command imports what it needs when it runs.
"""

from tiercel.broker.cli.app import app, main

__all__ = ["app", "main"]
