"""The command that makes an ONNX file a version of an endpoint, without any job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.completion import complete_endpoint
from tiercel.broker.cli.exit_codes import USAGE
from tiercel.broker.cli.output import clean, print_json
from tiercel.broker.cli.parameters import command, json_option, target_options
from tiercel.broker.cli.sending import SendingProgress
from tiercel.broker.cli.session import Target, fail, run
from tiercel.core.cheap_variants import CHEAP, VariantKind
from tiercel.core.endpoint_access import EndpointAccess

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tiercel.broker.client import Client, VersionInfo


@command(
    "tiercel deploy model.onnx --endpoint digits --accuracy 0.97",
    "tiercel deploy model.onnx --endpoint prices --metric mae=0.12 --minimize",
)
@click.argument(
    "file", type=click.Path(path_type=Path), metavar="FILE", help="The ONNX model; weights may be in files beside it."
)
@click.option(
    "--endpoint",
    required=True,
    metavar="NAME",
    help="The endpoint; it is made where there is none.",
    shell_complete=complete_endpoint,
)
@click.option("--accuracy", type=float, help="How good the model is, a fraction.")
@click.option("--metric", default="", metavar="NAME=VALUE", help="The same by another metric.")
@click.option("--minimize", is_flag=True, help="A smaller metric is better.")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=SHAPE",
    help="What it is tried with, such as x=1,3,224,224; 1 for each free axis when left out.",
)
@click.option(
    "--reference",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="An .npz file with input_NAME and the output_NAME that it must give.",
)
@click.option(
    "--calibration",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Rows to make cheap variants with: an .npz file with input_NAME and perhaps label, or an .npy file.",
)
@click.option(
    "--cheap-variant",
    "cheap_variants",
    type=click.Choice([kind.value for kind in CHEAP]),
    multiple=True,
    default=(VariantKind.INT8.value,),
    show_default=True,
    help="Which of them; may be repeated.",
)
@click.option("--node", default="", metavar="NAME", help="The node that shall answer with it.")
@click.option("--replicas", default="", metavar="N|auto", help="On how many nodes the endpoint answers.")
@click.option("--endpoint-objective-ms", type=float, help="Milliseconds that an answer of the endpoint may take.")
@click.option("--access", type=click.Choice([each.value for each in EndpointAccess]), help="Who may ask the endpoint.")
@click.option("--replace", is_flag=True, help="Let it answer even where it is worse or takes something else.")
@json_option
@target_options
def deploy(
    file: Path,
    *,
    endpoint: str,
    accuracy: float | None,
    metric: str,
    minimize: bool,
    inputs: tuple[str, ...],
    reference: Path | None,
    calibration: Path | None,
    cheap_variants: tuple[str, ...],
    node: str,
    replicas: str,
    endpoint_objective_ms: float | None,
    access: str | None,
    replace: bool,
    as_json: bool,
    target: Target,
) -> None:
    """Make an ONNX file the next version of an endpoint, without any job; waits until it answers."""
    from tiercel.core.jobs import Direction

    if accuracy is not None and metric:
        fail("--accuracy and --metric both say how good it is; give one of the two.", USAGE)
    name, value = _measured(metric)
    shapes = dict(map(_shape, inputs))
    count = _replicas(replicas)

    async def send(client: Client) -> VersionInfo:
        with SendingProgress(shown=not as_json) as progress:
            return await client.deploy(
                file,
                endpoint,
                accuracy=accuracy,
                metric=name,
                value=value,
                direction=Direction.MIN if minimize else Direction.MAX,
                inputs=shapes,
                reference=reference,
                calibration=calibration,
                cheap_variants=cheap_variants,
                node=node,
                replicas=count,
                objective_seconds=None if endpoint_objective_ms is None else endpoint_objective_ms / 1000,
                access=EndpointAccess(access) if access is not None else None,
                replace=replace,
                progress=progress,
            )

    version = run(target, send)
    if as_json:
        print_json(version.to_json())
        return
    _tell(file.name, endpoint, version)


def _tell(name: str, endpoint: str, version: VersionInfo) -> None:
    if version.was_there:
        click.echo(f"{clean(name)} is version {version.version} of {endpoint} already; no other one is made.")
    if version.live:
        where = ", ".join(version.nodes) or "its node"
        click.echo(f"{endpoint} answers with version {version.version} on {where}.")
    else:
        why = version.held or "another version answers by now"
        click.echo(clean(f"{endpoint}:{version.version} is kept and does not answer: {why}"))
    for each in version.cheap_variants:
        click.echo(clean(f"Its {each.outcome}"))


def _measured(text: str) -> tuple[str, float | None]:
    """The metric and its value of ``NAME=VALUE``."""
    if not text:
        return "", None
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        fail(f"--metric {text!r}: write NAME=VALUE, such as --metric mae=0.12.", USAGE)


def _shape(text: str) -> tuple[str, Sequence[int]]:
    """An input and its shape of ``NAME=1,3,224,224``."""
    name, _, sizes = text.rpartition("=")
    found = sizes.split(",")
    if not name or not all(size.strip().isascii() and size.strip().isdecimal() for size in found):
        fail(f"--input {text!r}: write NAME=SHAPE, such as --input x=1,3,224,224.", USAGE)
    return name, tuple(map(int, found))


def _replicas(text: str) -> int | None:
    """On how many nodes, 0 to leave it to the broker; None where nothing is said."""
    if text in {"", "auto"}:
        return 0 if text else None
    if not (text.isascii() and text.isdecimal() and int(text)):
        fail(f"--replicas {text!r}: give a number of nodes, or auto.", USAGE)
    return int(text)
