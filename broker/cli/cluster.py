"""Commands about nodes, and the program itself."""

from __future__ import annotations

import typer

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
from tiercel.broker.cli.session import AsJson, BrokerAddress, StateDir, Target, TenantName, run


def nodes(
    *,
    as_json: AsJson = False,
    state_dir: StateDir = None,
    broker: BrokerAddress = "",
    tenant: TenantName = "default",
) -> None:
    """List the machines with an agent, their accelerators, and the data sets that jobs may ask for."""
    found = run(Target(state_dir, broker, tenant), lambda client: client.list_nodes())
    if as_json:
        print_json([node.to_json() for node in found])
    elif found:
        print_table(NODE_COLUMNS, [node_row(node) for node in found])
        devices = [row for node in found for row in accelerator_rows(node)]
        if devices:
            typer.echo()
            print_table(ACCELERATOR_COLUMNS, devices)
        data = [row for node in found for row in data_rows(node)]
        if data:
            typer.echo()
            print_table(DATA_COLUMNS, data)
        labels = [row for node in found for row in label_rows(node)]
        if labels:
            typer.echo()
            print_table(LABEL_COLUMNS, labels)
    else:
        typer.echo("No nodes; an agent is started by 'tiercel up'.", err=True)


def version(*, as_json: AsJson = False) -> None:
    """Print Tiercel's version."""
    if as_json:
        print_json({"version": tiercel.__version__})
    else:
        typer.echo(f"tiercel {tiercel.__version__}")


def print_version(wanted: bool) -> None:
    """Print the version and end, if that is what the option asks for."""
    if wanted:
        version()
        raise typer.Exit
