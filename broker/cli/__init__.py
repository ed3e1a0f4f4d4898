"""The command line, ``tiercel``.

Only click is imported to find out what is asked for; each command is imported when it is called.
"""

from tiercel.broker.cli.app import app, main

__all__ = ["app", "main"]
