"""``tiercel models register``: the registry of MLflow says what versions there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.completion import complete_endpoint
from tiercel.broker.cli.output import clean, print_json
from tiercel.broker.cli.parameters import command, json_option, target_options
from tiercel.broker.cli.session import Target, run

if TYPE_CHECKING:
    from tiercel.broker.client import Client


@command(
    "tiercel models register digits --to mlflow:http://localhost:5000",
    "tiercel models register digits --to mlflow:sqlite:///mlflow.db --follow",
)
@click.argument(
    "endpoints",
    metavar="ENDPOINT...",
    nargs=-1,
    required=True,
    help="Whose versions.",
    shell_complete=complete_endpoint,
)
@click.option("--to", required=True, metavar="PLACE", help="mlflow:URI.")
@click.option("--name", default="", metavar="NAME", help="Of the registered model, where it is another one.")
@click.option("--follow", is_flag=True, help="Go on until interrupted, with a look every ten seconds.")
@json_option
@target_options
def register(*, endpoints: tuple[str, ...], to: str, name: str, follow: bool, as_json: bool, target: Target) -> None:
    """Have MLflow's registry say which versions answer, have answered or are gone; done again it changes nothing."""

    def told(endpoint: str, new: int) -> None:
        if follow and not as_json:
            click.echo(f"{clean(endpoint)}: new versions: {new}")

    async def keep(client: Client) -> dict[str, int]:
        import asyncio

        from tiercel.broker.client.sinks.opening import open_registry
        from tiercel.broker.client.sinks.registering import register as register_all

        registry = await asyncio.to_thread(open_registry, to)
        return await register_all(client, endpoints, registry, name=name, follow=follow, told=told)

    found = run(target, keep)
    if as_json:
        print_json(found)
        return
    for endpoint, new in found.items():
        click.echo(f"{clean(endpoint)}: new versions: {new}")
