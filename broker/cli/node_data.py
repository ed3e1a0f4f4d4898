"""Commands of a node's operator about the data sets that it offers: on the node, beside its agent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.output import print_json, print_table
from tiercel.broker.cli.parameters import command, json_option, state_dir_option
from tiercel.broker.cli.session import fail
from tiercel.core.declared_data import DataDeclarations
from tiercel.core.errors import TiercelError
from tiercel.core.figures import size

if TYPE_CHECKING:
    from tiercel.core.views import NodeInfo

DATA_COLUMNS = ("NODE", "DATA SET", "SIZE")
_agent_dir_option = click.option(
    "--agent-dir",
    type=click.Path(path_type=Path),
    help="State directory of an agent that 'tiercel up' did not start.",
    show_default="STATE_DIR/agent",
)


def data_rows(node: NodeInfo) -> list[tuple[str, ...]]:
    """A node's data sets for :data:`DATA_COLUMNS`."""
    return [(node.id, each.name, "-" if each.size_bytes is None else size(each.size_bytes)) for each in node.data]


@command("tiercel node data add imagenet /mnt/imagenet")
@click.argument("name", help="What jobs ask for: 1 to 63 of a-z, 0-9 and '-'.")
@click.argument("path", type=click.Path(path_type=Path), help="A file or folder; what it links to is looked up now.")
@state_dir_option
@_agent_dir_option
def add(name: str, path: Path, *, state_dir: Path | None, agent_dir: Path | None) -> None:
    """Offer a file or folder to jobs, to read; the agent notices within seconds."""
    try:
        added = _declarations(state_dir, agent_dir).add(name, path)
    except TiercelError as error:
        fail(error.message)
    large = "" if added.size_bytes is None else f" ({size(added.size_bytes)})"
    click.echo(f"Jobs may read {added.path}{large} as {name}.")


@command("tiercel node data ls")
@json_option
@state_dir_option
@_agent_dir_option
def list_(*, as_json: bool, state_dir: Path | None, agent_dir: Path | None) -> None:
    """List what this node offers, with its paths."""
    try:
        found = _declarations(state_dir, agent_dir).read()
    except TiercelError as error:
        fail(error.message)
    rows = [(each, "there" if each.is_there else "gone") for each in found.values()]
    if as_json:
        print_json(
            [
                {"name": each.name, "path": str(each.path), "size_bytes": each.size_bytes, "state": state}
                for each, state in rows
            ]
        )
    elif rows:
        print_table(
            ("NAME", "SIZE", "STATE", "PATH"),
            [
                (each.name, "-" if each.size_bytes is None else size(each.size_bytes), state, str(each.path))
                for each, state in rows
            ],
        )
    else:
        click.echo("No data sets; 'tiercel node data add NAME PATH' offers one.", err=True)


@command("tiercel node data remove imagenet")
@click.argument("name", help="What jobs ask for: 1 to 63 of a-z, 0-9 and '-'.")
@state_dir_option
@_agent_dir_option
def remove(name: str, *, state_dir: Path | None, agent_dir: Path | None) -> None:
    """Offer a data set no more. Its files stay, and so do the runs that read them."""
    try:
        _declarations(state_dir, agent_dir).remove(name)
    except TiercelError as error:
        fail(error.message)
    click.echo(f"Jobs may read {name} no more.")


def _declarations(state_dir: Path | None, agent_dir: Path | None) -> DataDeclarations:
    from tiercel.broker.client.state_dir import default_state_dir

    return DataDeclarations((agent_dir or (state_dir or default_state_dir()) / "agent").absolute())
