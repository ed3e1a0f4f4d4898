"""``python -m benchmarks.scheduling --help``."""

from benchmarks.scheduling.commands import app

app()
