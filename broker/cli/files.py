"""The command about files that jobs left behind."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.output import age, clean, print_json, print_table
from tiercel.broker.cli.parameters import command, job_argument, json_option, target_options
from tiercel.broker.cli.session import Target, fail, run
from tiercel.core.figures import size

if TYPE_CHECKING:
    from tiercel.broker.client import Client, FileInfo

_COLUMNS = ("PATH", "SIZE", "AGE", "RUN")


@command("tiercel files JOB", "tiercel files JOB --get 'reports/*.html' --to reports")
@job_argument
@click.option(
    "--get", multiple=True, metavar="PATTERN", help="Fetch those that match, such as 'reports/*.html'; repeatable."
)
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where to put them.",
    show_default="a folder named like the job",
)
@json_option
@target_options
def files(job_id: str, *, get: tuple[str, ...], to: Path | None, as_json: bool, target: Target) -> None:
    """List the files that a job left behind (its spec's outputs), or fetch them."""
    if to is not None and not get:
        fail("--to says where files go: say which with --get PATTERN; '**' is all of them.")
    if get:
        _fetch(target, job_id, get, to or Path(job_id), as_json=as_json)
        return
    found = run(target, lambda client: client.files(job_id))
    if as_json:
        print_json([file.to_json() for file in found])
    elif found:
        print_table(
            _COLUMNS, [(clean(file.path), size(file.size_bytes), age(file.kept_at), file.run_id) for file in found]
        )
    else:
        click.echo(
            "No files are kept of this job; the outputs of its spec name what is kept when a run ends.", err=True
        )


def _fetch(target: Target, job_id: str, patterns: tuple[str, ...], to: Path, *, as_json: bool) -> None:
    watched = sys.stderr.isatty()

    def show(file: FileInfo, received: int) -> None:
        line = f"{clean(file.path)}  {size(received)} of {size(file.size_bytes)}"
        if watched:
            click.echo(f"\r\x1b[K{line}", nl=received >= file.size_bytes, err=True)

    async def fetch(client: Client) -> list[Path]:
        places: dict[Path, None] = {}
        for pattern in patterns:
            places |= dict.fromkeys(await client.download(job_id, to, pattern, progress=show))
        return list(places)

    places = run(target, fetch)
    if as_json:
        print_json([str(place) for place in places])
    else:
        for place in places:
            click.echo(clean(str(place)))
