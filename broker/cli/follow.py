"""``tiercel follow``: copies what jobs report to where people look at experiments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.completion import complete_job
from tiercel.broker.cli.output import clean, print_json
from tiercel.broker.cli.parameters import command, json_option, target_options
from tiercel.broker.cli.session import Target, run

if TYPE_CHECKING:
    from tiercel.broker.client import Client


@command("tiercel follow 3f2a --to tensorboard:logs", "tiercel follow 3f2a 9c01 --to mlflow:http://localhost:5000")
@click.argument(
    "jobs", metavar="JOB...", nargs=-1, required=True, help="As 'tiercel ls' shows them.", shell_complete=complete_job
)
@click.option("--to", required=True, metavar="PLACE", help="mlflow:URI or tensorboard:FOLDER.")
@json_option
@target_options
def follow(*, jobs: tuple[str, ...], to: str, as_json: bool, target: Target) -> None:
    """Copy parameters, metrics and versions of jobs until they are over; begun again, it goes on where it was left."""

    async def copy(client: Client) -> dict[str, int]:
        import asyncio

        from tiercel.broker.client.sinks.following import follow as follow_jobs
        from tiercel.broker.client.sinks.opening import open_sink

        return await follow_jobs(client, jobs, await asyncio.to_thread(open_sink, to))

    copied = run(target, copy)
    if as_json:
        print_json(copied)
        return
    for job_id, count in copied.items():
        click.echo(f"{clean(job_id)}: {count} reports were copied.")
