"""``tiercel endpoints`` and what can be done with one."""

from __future__ import annotations

import click

from tiercel.broker.cli.completion import complete_endpoint
from tiercel.broker.cli.exit_codes import USAGE
from tiercel.broker.cli.group import LazyGroup, examples_text
from tiercel.broker.cli.output import ENDPOINT_COLUMNS, endpoint_notes, endpoint_rows, print_json, print_table
from tiercel.broker.cli.parameters import command, json_option, target_options
from tiercel.broker.cli.session import Target, fail, run
from tiercel.core.endpoint_access import EndpointAccess


@click.group(
    "endpoints",
    cls=LazyGroup,
    invoke_without_command=True,
    epilog=examples_text("tiercel endpoints", "tiercel endpoints delete digits"),
)
@json_option
@target_options
@click.pass_context
def endpoints(context: click.Context, *, as_json: bool, target: Target) -> None:
    """List the tenant's endpoints with the version that answers, or with the variants that do."""
    if context.invoked_subcommand is not None:
        _check_no_options_before(context)
        return
    found = run(target, lambda client: client.list_endpoints())
    if as_json:
        print_json([endpoint.to_json() for endpoint in found])
    elif found:
        from tiercel.broker.cli.lines import say

        print_table(ENDPOINT_COLUMNS, [row for endpoint in found for row in endpoint_rows(endpoint)])
        for line in endpoint_notes(found):
            say(line)
    else:
        click.echo("No endpoints; one appears with the first job that feeds it.", err=True)


@command("tiercel endpoints delete digits")
@click.argument("name", metavar="NAME", help="The endpoint's name.", shell_complete=complete_endpoint)
@json_option
@target_options
def delete(name: str, *, as_json: bool, target: Target) -> None:
    """Forget an endpoint and its versions for good; its name is free then. Refused while a job feeds it."""
    run(target, lambda client: client.delete_endpoint(name))
    if as_json:
        print_json({"deleted": name})
    else:
        click.echo(f"Endpoint {name} is deleted; its name is free.")


@command("tiercel endpoints access digits key")
@click.argument("name", metavar="NAME", help="The endpoint's name.", shell_complete=complete_endpoint)
@click.argument("who", type=click.Choice([each.value for each in EndpointAccess]), help="Who may ask it.")
@target_options
def set_access(name: str, who: str, *, target: Target) -> None:
    """Say who may ask an endpoint: everybody, its tenant, or who has one of its keys."""
    run(target, lambda client: client.keys.set_access(name, EndpointAccess(who)))
    click.echo(f"Endpoint {name} is for {_WHO[EndpointAccess(who)]}.")


_WHO = {
    EndpointAccess.PUBLIC: "whoever reaches it",
    EndpointAccess.TENANT: "its tenant, and for whoever is on the machine that it answers on",
    EndpointAccess.KEY: "whoever has one of its keys",
}


def _check_no_options_before(context: click.Context) -> None:
    """Options of the listing do nothing for a command behind it: to ignore ``--tenant`` might delete another's."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = name.removeprefix("as_").replace("_", "-")
            fail(f"Give --{option} behind '{context.invoked_subcommand}'.", USAGE)
