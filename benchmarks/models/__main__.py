"""Run scripts of every framework as jobs (``models.json``), or a model of 2.5 GB (``models-large.json``)."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.models import frameworks
from benchmarks.models import large as large_model
from benchmarks.models.bars import section_of, section_of_large
from benchmarks.results import KEEP_HELP, ROOT
from benchmarks.sections import finish

DOCUMENT = ROOT / "docs" / "results.md"


def main(
    large: Annotated[
        bool, typer.Option("--large", help="Deploy a model of 2.5 GB twice, and ask it meanwhile.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help=KEEP_HELP)] = False,
) -> None:
    """Measure, tell, and write the result; exits with 1 where a bar does not hold."""
    name = "models-large" if large else "models"
    figures: dict[str, Any] = asyncio.run(large_model.measured()) if large else {"scripts": _scripts()}
    flags = "--large --keep" if large else "--keep"
    section = section_of_large if large else section_of
    finish(
        name,
        command=f"make bench-models BENCH_FLAGS='{flags}'",
        figures=figures,
        keep=keep,
        section=(DOCUMENT, section),
    )


def _scripts() -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(frameworks.measured(Path(folder)))
    for each in found:
        typer.echo(each)
    return found


if __name__ == "__main__":
    typer.run(main)
