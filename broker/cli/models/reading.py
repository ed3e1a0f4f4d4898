"""Commands that say what versions there are, and fetch them."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tiercel.broker.cli.completion import complete_endpoint
from tiercel.broker.cli.models.card import COLUMNS, difference_rows, lines, row
from tiercel.broker.cli.models.names import model_argument, model_name
from tiercel.broker.cli.output import clean, print_json, print_table
from tiercel.broker.cli.parameters import command, json_option, target_options
from tiercel.broker.cli.session import Target, run
from tiercel.core.figures import size


@command("tiercel models ls", "tiercel models ls digits --json")
@click.argument(
    "endpoint", default="", metavar="[ENDPOINT]", help="Of one endpoint alone.", shell_complete=complete_endpoint
)
@json_option
@target_options
def ls(endpoint: str, *, as_json: bool, target: Target) -> None:
    """List every version that endpoints have and had, the newest first."""
    found = run(target, lambda client: client.models.list(endpoint))
    if as_json:
        print_json([version.to_json() for version in found])
    elif found:
        print_table(COLUMNS, [row(version) for version in found])
    else:
        click.echo("Nothing was delivered yet; a job does that when it reaches a tier.", err=True)


@command("tiercel models show digits", "tiercel models show digits:2 --json")
@model_argument()
@json_option
@target_options
def show(model: str, *, as_json: bool, target: Target) -> None:
    """Show a version's card: accuracy, latency, size, nodes, and where it comes from."""
    name, version = model_name(model)
    card = run(target, lambda client: client.models.show(name, version))
    if as_json:
        print_json(card.to_json())
    else:
        click.echo("\n".join(lines(card)))


@command("tiercel models compare digits:2 digits:3", "tiercel models compare digits:2 digits --json")
@model_argument("first")
@model_argument("second")
@json_option
@target_options
def compare(first: str, second: str, *, as_json: bool, target: Target) -> None:
    """Put two versions side by side: all in which they differ, from accuracy to arguments."""
    names = model_name(first), model_name(second)
    found = run(target, lambda client: client.models.compare(*names))
    if as_json:
        print_json([difference.to_json() for difference in found])
    elif found:
        print_table(("", first, second), difference_rows(found))
    else:
        click.echo(f"{first} and {second} are the same.")


@command("tiercel models pull digits", "tiercel models pull digits:2 --to models")
@model_argument()
@click.option("--to", type=click.Path(path_type=Path), default=Path(), metavar="DIR", help="Where to put it.")
@json_option
@target_options
def pull(model: str, *, to: Path, as_json: bool, target: Target) -> None:
    """Fetch a version's ONNX file, its SHA-256 checked, as DIR/ENDPOINT-VERSION.onnx, or a folder with weights."""
    name, version = model_name(model)
    watched = sys.stderr.isatty()

    def progress(have: int, size_bytes: int) -> None:
        if watched:
            click.echo(f"\r\x1b[K{model}  {size(have)} of {size(size_bytes)}", nl=have >= size_bytes, err=True)

    place = run(target, lambda client: client.models.pull(name, version, to, progress=progress))
    if as_json:
        print_json(str(place))
    else:
        click.echo(clean(str(place)))
