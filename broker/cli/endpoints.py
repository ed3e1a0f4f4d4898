"""``tiercel endpoints`` and what can be done with one."""

from __future__ import annotations

from typing import Annotated

import typer

from tiercel.broker.cli.completion import complete_endpoint
from tiercel.broker.cli.output import ENDPOINT_COLUMNS, auto_replica_lines, endpoint_rows, print_json, print_table
from tiercel.broker.cli.session import USAGE, AsJson, BrokerAddress, StateDir, Target, TenantName, fail, run

endpoints = typer.Typer(invoke_without_command=True)


@endpoints.callback()
def list_all(
    context: typer.Context,
    *,
    as_json: AsJson = False,
    state_dir: StateDir = None,
    broker: BrokerAddress = "",
    tenant: TenantName = "default",
) -> None:
    """List the tenant's endpoints with the version that answers, or with the variants that do."""
    if context.invoked_subcommand is not None:
        _check_no_options_before(context)
        return
    found = run(Target(state_dir, broker, tenant), lambda client: client.list_endpoints())
    if as_json:
        print_json([endpoint.to_json() for endpoint in found])
    elif found:
        print_table(ENDPOINT_COLUMNS, [row for endpoint in found for row in endpoint_rows(endpoint)])
        for line in auto_replica_lines(found):
            typer.echo(line)
    else:
        typer.echo("No endpoints; one appears with the first job that feeds it.", err=True)


@endpoints.command()
def delete(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The endpoint's name.", autocompletion=complete_endpoint)],
    *,
    as_json: AsJson = False,
    state_dir: StateDir = None,
    broker: BrokerAddress = "",
    tenant: TenantName = "default",
) -> None:
    """Forget an endpoint and its versions for good; its name is free then. Refused while a job feeds it."""
    run(Target(state_dir, broker, tenant), lambda client: client.delete_endpoint(name))
    if as_json:
        print_json({"deleted": name})
    else:
        typer.echo(f"Endpoint {name} is deleted; its name is free.")


def _check_no_options_before(context: typer.Context) -> None:
    """Options of the listing do nothing for a command behind it: to ignore ``--tenant`` might delete another's."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = name.removeprefix("as_").replace("_", "-")
            fail(f"Give --{option} behind '{context.invoked_subcommand}'.", USAGE)
