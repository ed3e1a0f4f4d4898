"""Commands about nodes, and the program itself."""

from __future__ import annotations

import click

import tiercel
from tiercel.broker.cli.node_data import DATA_COLUMNS, data_rows
from tiercel.broker.cli.output import (
    ACCELERATOR_COLUMNS,
    LABEL_COLUMNS,
    NODE_COLUMNS,
    accelerator_rows,
    label_rows,
    node_row,
    print_json,
    print_table,
)
from tiercel.broker.cli.parameters import command, json_option, target_options
from tiercel.broker.cli.session import Target, run


@command("tiercel nodes", "tiercel nodes --json")
@json_option
@target_options
def nodes(*, as_json: bool, target: Target) -> None:
    """List the machines with an agent, their accelerators, and the data sets that jobs may ask for."""
    found = run(target, lambda client: client.list_nodes())
    if as_json:
        print_json([node.to_json() for node in found])
    elif found:
        print_table(NODE_COLUMNS, [node_row(node) for node in found])
        devices = [row for node in found for row in accelerator_rows(node)]
        if devices:
            click.echo()
            print_table(ACCELERATOR_COLUMNS, devices)
        data = [row for node in found for row in data_rows(node)]
        if data:
            click.echo()
            print_table(DATA_COLUMNS, data)
        labels = [row for node in found for row in label_rows(node)]
        if labels:
            click.echo()
            print_table(LABEL_COLUMNS, labels)
    else:
        click.echo("No nodes; an agent is started by 'tiercel up'.", err=True)


@command("tiercel version --json")
@json_option
def version(*, as_json: bool) -> None:
    """Print Tiercel's version."""
    if as_json:
        print_json({"version": tiercel.__version__})
    else:
        click.echo(f"tiercel {tiercel.__version__}")
