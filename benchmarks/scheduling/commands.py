"""The command line of the live experiments."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import psutil
import typer
from rich.console import Console

from benchmarks.scheduling.kinds import KINDS
from benchmarks.scheduling.record import record, runs_to_record
from benchmarks.scheduling.recordings import FOLDER, Recording

app = typer.Typer(help=__doc__, no_args_is_help=True, pretty_exceptions_enable=False)
BUILD = Path("build/scheduling")


@app.command("record")
def record_command(
    kind: Annotated[list[str] | None, typer.Option(help="Record this kind only; repeatable.")] = None,
    output: Annotated[Path, typer.Option(help="Folder of recordings.")] = FOLDER,
) -> None:
    """Run each kind of job alone, with each training seed, and keep what it did."""
    console = Console()
    runs = runs_to_record(kind or tuple(KINDS))

    def tell(made: Recording) -> None:
        made.write(output)
        console.print(made.kind, made.training_seed, made.cpu_seconds, made.startup_cpu_seconds, made.works())

    asyncio.run(record(runs, BUILD / "record", psutil.cpu_count() or 1, tell))


@app.callback()
def main() -> None:
    pass
