"""``python -m benchmarks.serving --help``."""

from benchmarks.serving.commands import app

app()
