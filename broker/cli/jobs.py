"""Commands about jobs that exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.completion import complete_endpoint, complete_job
from tiercel.broker.cli.output import (
    DECISION_COLUMNS,
    JOB_COLUMNS,
    clean,
    decision_row,
    job_row,
    print_json,
    print_table,
)
from tiercel.broker.cli.parameters import active_job_argument, command, job_argument, json_option, target_options
from tiercel.broker.cli.session import Target, exit_by, fail, run
from tiercel.broker.cli.watch import follow_job

if TYPE_CHECKING:
    from tiercel.broker.client import Client, EndpointExplanation, Explanation, JobInfo


@command("tiercel ls --active", "tiercel ls --limit 10 --json")
@click.option("--active", is_flag=True, help="Leave out jobs that have finished.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the newest N; all when left out.")
@json_option
@target_options
def ls(*, active: bool, limit: int | None, as_json: bool, target: Target) -> None:
    """List the tenant's jobs."""
    jobs = run(target, lambda client: client.list_jobs(active_only=active, limit=limit))
    if as_json:
        print_json([job.to_json() for job in jobs])
    elif jobs:
        print_table(JOB_COLUMNS, [job_row(job) for job in jobs])
    else:
        click.echo("No jobs; create one with 'tiercel submit'.", err=True)


@command("tiercel show JOB")
@job_argument
@json_option
@target_options
def show(job_id: str, *, as_json: bool, target: Target) -> None:
    """Show all that is known about a job."""
    from tiercel.broker.cli.details import job_lines  # listings do without
    from tiercel.broker.cli.lines import LABEL_WIDTH, say

    job = run(target, lambda client: client.get_job(job_id))
    if as_json:
        print_json(job.to_json())
    else:
        for line in job_lines(job):
            say(line, LABEL_WIDTH)


@command("tiercel cancel JOB")
@active_job_argument
@json_option
@target_options
def cancel(job_id: str, *, as_json: bool, target: Target) -> None:
    """Stop a job; versions that it delivered keep serving."""
    _say(run(target, lambda client: client.cancel_job(job_id)), as_json=as_json)


@command("tiercel suspend JOB")
@active_job_argument
@json_option
@target_options
def suspend(job_id: str, *, as_json: bool, target: Target) -> None:
    """Have a job save a checkpoint, free what it holds and wait until 'tiercel resume'; its endpoint goes on."""
    _say(run(target, lambda client: client.suspend_job(job_id)), as_json=as_json)


@command("tiercel resume JOB --max-epochs 200 --wait")
@job_argument
@click.option(
    "--max-epochs",
    type=click.IntRange(min=1, max=2**31),
    help="Epochs that it may train, those before counted; for one that ran out of them.",
)
@click.option("--wait", is_flag=True, help="Follow it to its end; exit code 3 if it fails, 4 if it misses a tier.")
@json_option
@target_options
def resume(job_id: str, *, max_epochs: int | None, wait: bool, as_json: bool, target: Target) -> None:
    """Let a job that is suspended, failed, was cancelled or missed a tier go on from its last checkpoint."""

    async def go_on(client: Client) -> JobInfo:
        return await _said(client, await client.resume_job(job_id, max_epochs), wait=wait, as_json=as_json)

    job = run(target, go_on)
    if as_json:
        print_json(job.to_json())
    if wait:
        exit_by([job])


@command("tiercel retry JOB --from-scratch --wait")
@job_argument
@click.option("--from-scratch", is_flag=True, help="Train from the beginning, as a new job that names this one.")
@click.option("--wait", is_flag=True, help="Follow it to its end; exit code 3 if it fails, 4 if it misses a tier.")
@json_option
@target_options
def retry(job_id: str, *, from_scratch: bool, wait: bool, as_json: bool, target: Target) -> None:
    """Start a job that is over again, from its last checkpoint, as another run under its id."""

    async def start(client: Client) -> JobInfo:
        job = await client.retry_job(job_id, from_scratch=from_scratch)
        if not as_json and job.id != job_id:
            click.echo(f"A new job, {job.id}, since another training has its own curve and versions.", err=True)
        return await _said(client, job, wait=wait, as_json=as_json)

    job = run(target, start)
    if as_json:
        print_json(job.to_json())
    if wait:
        exit_by([job])


# Or a number below 0 would be taken for an option.
@command("tiercel priority JOB 5", "tiercel priority JOB -5", ignore_unknown_options=True)
@active_job_argument
@click.argument(
    "number", type=click.IntRange(min=-100, max=100), metavar="N", help="More goes first; 0 is the default."
)
@json_option
@target_options
def priority(job_id: str, number: int, *, as_json: bool, target: Target) -> None:
    """Give a job that waits or runs another priority among the tenant's own."""
    job = run(target, lambda client: client.set_priority(job_id, number))
    if as_json:
        print_json(job.to_json())
    else:
        click.echo(f"{job.id} has priority {job.spec.priority}.")


async def _said(client: Client, job: JobInfo, *, wait: bool, as_json: bool) -> JobInfo:
    """A job that was let go on, told and perhaps followed to its end."""
    if not as_json:
        _say(job, as_json=False)
    return await follow_job(client, job.id, quiet=as_json) if wait else job


def _say(job: JobInfo, *, as_json: bool) -> None:
    if as_json:
        print_json(job.to_json())
    else:
        click.echo(f"{job.id} is {job.state.value}" + (f": {clean(job.reason).rstrip('.')}." if job.reason else "."))


@command("tiercel explain JOB", "tiercel explain --endpoint digits", "tiercel explain --endpoint digits --request 7f3a")
@click.argument("job_id", default="", metavar="[JOB]", help="The job's id.", shell_complete=complete_job)
@click.option(
    "--endpoint", default="", metavar="NAME", help="An endpoint instead of a job.", shell_complete=complete_endpoint
)
@click.option(
    "--request",
    "request_id",
    default="",
    metavar="ID",
    help="What became of a request that was asked with this id, in the last minutes.",
)
@click.option("--key", default="", help="With --request, as in 'tiercel infer'.")
@json_option
@target_options
def explain(job_id: str, *, endpoint: str, request_id: str, key: str, as_json: bool, target: Target) -> None:
    """Say why a job or an endpoint has its share, with past decisions, or where a request spent its time."""
    if request_id:
        if job_id or not endpoint:
            fail("Name the endpoint of the request: 'tiercel explain --endpoint NAME --request ID'.")
        from tiercel.broker.cli.asked import explain_request  # listings do without

        explain_request(target, endpoint, request_id, key, as_json=as_json)
        return
    if bool(job_id) is bool(endpoint):
        fail("Name either a job, 'tiercel explain JOB', or an endpoint, 'tiercel explain --endpoint NAME'.")
    explanation: Explanation | EndpointExplanation
    from tiercel.broker.cli.details import endpoint_lines, why_lines
    from tiercel.broker.cli.lines import LABEL_WIDTH, say

    if endpoint:
        explanation = run(target, lambda client: client.explain_endpoint(endpoint))
        lines = endpoint_lines(explanation.endpoint)
    else:
        explanation = run(target, lambda client: client.explain_job(job_id))
        lines = why_lines(explanation.job)
    if as_json:
        print_json(explanation.to_json())
        return
    for line in lines:
        say(line, LABEL_WIDTH)
    if explanation.decisions:
        print_table(DECISION_COLUMNS, [decision_row(decision) for decision in explanation.decisions])
    else:
        click.echo("The scheduler has not decided about it yet.")


@command("tiercel logs --follow JOB")
@job_argument
@click.option("--follow", "-f", is_flag=True, help="Stay until the job has finished.")
@target_options
def logs(job_id: str, *, follow: bool, target: Target) -> None:
    """Print the output of a job's training script."""

    async def print_logs(client: Client) -> None:
        async for chunk in client.logs(job_id, follow=follow):
            click.echo(chunk, nl=False)

    run(target, print_logs)
