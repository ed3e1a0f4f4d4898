"""``tiercel infer``: asks an endpoint."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tiercel.broker.cli.completion import complete_endpoint
from tiercel.broker.cli.exit_codes import USAGE
from tiercel.broker.cli.output import number, print_json
from tiercel.broker.cli.parameters import command, json_option, target_options
from tiercel.broker.cli.session import Target, fail, run, run_to_the_end

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tiercel.broker.client.endpoint_client import EndpointClient
    from tiercel.broker.client.inference import InferenceResult, Tensor

_SHOWN_ELEMENTS = 32

key_option = click.option(
    "--key",
    default="",
    help="For an endpoint that takes keys: '-' for standard input's first line. Others can read command lines; "
    "the environment's TIERCEL_KEY they cannot.",
)
at_option = click.option(
    "--at",
    default="",
    metavar="ADDRESS",
    help="Any node's, as 'tiercel endpoints' shows it under SERVING, or a proxy's: then neither broker nor "
    "token is needed, but a key or a public endpoint.",
)


@command("echo '{\"input\": [[0.1, 0.2]]}' | tiercel infer digits", "tiercel infer digits inputs.json --json")
@click.argument("endpoint", help="The endpoint's name.", shell_complete=complete_endpoint)
@click.argument("file", default="-", metavar="[FILE]", help="JSON with the inputs; '-' for standard input.")
@click.option(
    "--minimum-accuracy", type=float, help="Of an endpoint with variants: let none answer that is less accurate."
)
@key_option
@click.option(
    "--id",
    "request_id",
    default="",
    metavar="ID",
    help="An id of your own, for 'tiercel explain --endpoint NAME --request ID' afterwards.",
)
@at_option
@json_option
@target_options
def infer(
    endpoint: str,
    file: str,
    *,
    minimum_accuracy: float | None,
    key: str,
    request_id: str,
    at: str,
    as_json: bool,
    target: Target,
) -> None:
    """Ask an endpoint; inputs are a JSON object such as {"input": [[0.1, 0.2]]}, the batch dimension first."""
    check_place(at, target)
    shown = read_key(key)
    inputs = _read_inputs(file)
    if at:
        result = run_to_the_end(
            _ask_at(at, shown, lambda client: client.infer(endpoint, inputs, minimum_accuracy, request_id=request_id))
        )
    else:
        result = run(
            target,
            lambda client: _or_name_at(client.infer(endpoint, inputs, minimum_accuracy, shown, request_id=request_id)),
        )
    if as_json:
        print_json(result.to_json())
    else:
        _print_result(result)


async def _or_name_at(answer: Awaitable[InferenceResult]) -> InferenceResult:
    from tiercel.core.errors import UnavailableError

    try:
        return await answer
    except UnavailableError as error:
        hint = "A node's inference server answers without a broker: --at ADDRESS, with a key or of a public endpoint."
        raise UnavailableError(f"{error.message.rstrip('.')}. {hint}") from error


async def _ask_at(
    address: str, key: str | None, ask: Callable[[EndpointClient], Awaitable[InferenceResult]]
) -> InferenceResult:
    from tiercel.broker.client.endpoint_client import EndpointClient

    async with EndpointClient(address, key=key) as client:
        return await ask(client)


def check_place(at: str, target: Target) -> None:
    """End the command where two places are named."""
    if at and target.broker:
        fail("Give --at or --broker, not both: at a node's address no broker is asked.", USAGE)


def read_key(key: str) -> str | None:
    """The key that is shown: ``-`` is standard input's first line; None where none is given."""
    return (sys.stdin.readline().strip() if key == "-" else key) or None


def _read_inputs(file: str) -> dict[str, Any]:
    name = "standard input" if file == "-" else file
    if file == "-" and sys.stdin.isatty():
        click.echo('Waiting for JSON such as {"input": [[0.1, 0.2]]}, and Ctrl-D behind it.', err=True)
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        inputs = json.loads(text)
    except OSError as error:
        fail(f"{name} cannot be read ({error.strerror}); give the path of a JSON file.")
    except ValueError as error:
        problem = f"is not JSON ({error})" if text.strip() else "is empty"
        fail(f'{name} {problem}; give an object such as {{"input": [[0.1, 0.2]]}}.')
    except RecursionError:
        fail(f"{name} is nested deeper than any model's inputs are.")
    if not isinstance(inputs, dict):
        fail(f'{name} must hold an object such as {{"input": [[0.1, 0.2]]}}.')
    return inputs


def _print_result(result: InferenceResult) -> None:
    variant = f" {result.variant}" if result.variant else ""
    click.echo(f"{result.endpoint}{variant} version {result.version or '?'}")
    for tensor in result.outputs.values():
        click.echo(f"{tensor.name} {tensor.datatype} {list(tensor.shape)}: {_elements(tensor)}")


def _elements(tensor: Tensor) -> str:
    shown = (number(value) if isinstance(value, float) else str(value) for value in tensor.data[:_SHOWN_ELEMENTS])
    return " ".join(shown) + (" … (all of it with --json)" if len(tensor.data) > _SHOWN_ELEMENTS else "")
