"""``python -m benchmarks.fuzz --help``."""

from benchmarks.fuzz.commands import app

app()
