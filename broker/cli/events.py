"""``tiercel events``: what happens to all jobs of the tenant, a line for each."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.lines import LABEL_WIDTH, say
from tiercel.broker.cli.parameters import command, json_option, target_options
from tiercel.broker.cli.session import Target, run

if TYPE_CHECKING:
    from tiercel.broker.client import Client, JobEvent


@command("tiercel events", "tiercel events -f --json")
@click.option("--follow", "-f", is_flag=True, help="Go on with what happens from now on, until Ctrl-C.")
@click.option(
    "--after",
    metavar="SEQUENCE",
    type=click.IntRange(min=0),
    default=0,
    help="Only events behind this one, whose number --json tells.",
)
@json_option
@target_options
def events(*, follow: bool, after: int, as_json: bool, target: Target) -> None:
    """Print what happened to the tenant's jobs, as far as the broker keeps it; with --json an object a line."""

    async def print_events(client: Client) -> None:
        names = {job.id: job.spec.name for job in await client.list_jobs()}
        async with aclosing(client.events(after=after, follow=follow)) as stream:
            async for event in stream:
                if event.job_id not in names:
                    names[event.job_id] = (await client.get_job(event.job_id)).spec.name
                _print(event, names[event.job_id], as_json=as_json)

    run(target, print_events)


def _print(event: JobEvent, name: str, *, as_json: bool) -> None:
    from tiercel.broker.cli.job_view import event_line

    if as_json:
        click.echo(json.dumps(event.to_json(), ensure_ascii=False))
    else:
        say(event_line(event, name), LABEL_WIDTH)
