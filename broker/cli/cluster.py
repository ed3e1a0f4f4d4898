"""Commands about nodes, asking an endpoint, and the program itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import tiercel
from tiercel.broker.cli.completion import complete_endpoint
from tiercel.broker.cli.node_data import DATA_COLUMNS, data_rows
from tiercel.broker.cli.output import (
    ACCELERATOR_COLUMNS,
    LABEL_COLUMNS,
    NODE_COLUMNS,
    accelerator_rows,
    label_rows,
    node_row,
    number,
    print_json,
    print_table,
)
from tiercel.broker.cli.session import AsJson, BrokerAddress, StateDir, Target, TenantName, fail, run

if TYPE_CHECKING:
    from tiercel.broker.client.inference import InferenceResult, Tensor

_SHOWN_ELEMENTS = 32


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


def infer(
    endpoint: Annotated[str, typer.Argument(help="The endpoint's name.", autocompletion=complete_endpoint)],
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON with the inputs; '-' for standard input.")] = "-",
    *,
    minimum_accuracy: Annotated[
        float | None, typer.Option(help="Of an endpoint with variants: let none answer that is less accurate.")
    ] = None,
    key: Annotated[
        str,
        typer.Option(
            help="For an endpoint that takes keys: '-' for standard input's first line. Others can read command lines; "
            "the environment's TIERCEL_KEY they cannot."
        ),
    ] = "",
    as_json: AsJson = False,
    state_dir: StateDir = None,
    broker: BrokerAddress = "",
    tenant: TenantName = "default",
) -> None:
    """Ask an endpoint; inputs are a JSON object such as {"input": [[0.1, 0.2]]}, the batch dimension first."""
    shown = sys.stdin.readline().strip() if key == "-" else key
    inputs = _read_inputs(file)
    target = Target(state_dir, broker, tenant)
    result = run(target, lambda client: client.infer(endpoint, inputs, minimum_accuracy, shown or None))
    if as_json:
        print_json(result.to_json())
    else:
        _print_result(result)


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


def _read_inputs(file: str) -> dict[str, Any]:
    name = "standard input" if file == "-" else file
    if file == "-" and sys.stdin.isatty():
        typer.echo('Waiting for JSON such as {"input": [[0.1, 0.2]]}, and Ctrl-D behind it.', err=True)
    try:
        inputs = json.loads(sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        fail(f"{name} cannot be read ({error.strerror}); give the path of a JSON file.")
    except ValueError as error:
        fail(f"{name} is not JSON: {error}")
    except RecursionError:
        fail(f"{name} is nested deeper than any model's inputs are.")
    if not isinstance(inputs, dict):
        fail(f'{name} must hold an object such as {{"input": [[0.1, 0.2]]}}.')
    return inputs


def _print_result(result: InferenceResult) -> None:
    variant = f" {result.variant}" if result.variant else ""
    typer.echo(f"{result.endpoint}{variant} version {result.version or '?'}")
    for tensor in result.outputs.values():
        typer.echo(f"{tensor.name} {tensor.datatype} {list(tensor.shape)}: {_elements(tensor)}")


def _elements(tensor: Tensor) -> str:
    shown = (number(value) if isinstance(value, float) else str(value) for value in tensor.data[:_SHOWN_ELEMENTS])
    return " ".join(shown) + (" … (all of it with --json)" if len(tensor.data) > _SHOWN_ELEMENTS else "")
