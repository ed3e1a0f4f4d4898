"""Commands about jobs that exist."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tiercel.broker.cli.completion import complete_active_job, complete_endpoint, complete_job
from tiercel.broker.cli.details import endpoint_lines, job_lines
from tiercel.broker.cli.output import (
    DECISION_COLUMNS,
    JOB_COLUMNS,
    clean,
    decision_row,
    job_row,
    print_json,
    print_table,
)
from tiercel.broker.cli.session import AsJson, BrokerAddress, StateDir, Target, TenantName, exit_by, fail, run
from tiercel.broker.cli.watch import follow_job

if TYPE_CHECKING:
    from tiercel.broker.client import Client, EndpointExplanation, Explanation, JobInfo

_ID = "The job's id, as 'tiercel ls' shows it."
JobId = Annotated[str, typer.Argument(metavar="JOB", help=_ID, autocompletion=complete_job)]
ActiveJobId = Annotated[str, typer.Argument(metavar="JOB", help=_ID, autocompletion=complete_active_job)]


def ls(
    *,
    active: Annotated[bool, typer.Option("--active", help="Leave out jobs that have finished.")] = False,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="Only the newest N; all when left out.")] = None,
    as_json: AsJson = False,
    state_dir: StateDir = None,
    broker: BrokerAddress = "",
    tenant: TenantName = "default",
) -> None:
    """List the tenant's jobs."""
    jobs = run(Target(state_dir, broker, tenant), lambda client: client.list_jobs(active_only=active, limit=limit))
    if as_json:
        print_json([job.to_json() for job in jobs])
    elif jobs:
        print_table(JOB_COLUMNS, [job_row(job) for job in jobs])
    else:
        typer.echo("No jobs; create one with 'tiercel submit'.", err=True)


def show(
    job_id: JobId,
    *,
    as_json: AsJson = False,
    state_dir: StateDir = None,
    broker: BrokerAddress = "",
    tenant: TenantName = "default",
) -> None:
    """Show all that is known about a job."""
    job = run(Target(state_dir, broker, tenant), lambda client: client.get_job(job_id))
    if as_json:
        print_json(job.to_json())
    else:
        typer.echo("\n".join(job_lines(job)))


def cancel(
    job_id: ActiveJobId,
    *,
    as_json: AsJson = False,
    state_dir: StateDir = None,
    broker: BrokerAddress = "",
    tenant: TenantName = "default",
) -> None:
    """Stop a job; versions that it delivered keep serving."""
    _say(run(Target(state_dir, broker, tenant), lambda client: client.cancel_job(job_id)), as_json=as_json)


def suspend(
    job_id: ActiveJobId,
    *,
    as_json: AsJson = False,
    state_dir: StateDir = None,
    broker: BrokerAddress = "",
    tenant: TenantName = "default",
) -> None:
    """Have a job save a checkpoint, free what it holds and wait until 'tiercel resume'; its endpoint goes on."""
    _say(run(Target(state_dir, broker, tenant), lambda client: client.suspend_job(job_id)), as_json=as_json)


def resume(
    job_id: JobId,
    *,
    max_epochs: Annotated[
        int | None,
        typer.Option(
            min=1, max=2**31, help="Epochs that it may train, those before counted; for one that ran out of them."
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow it to its end; exit code 3 if it fails, 4 if it misses a tier.")
    ] = False,
    as_json: AsJson = False,
    state_dir: StateDir = None,
    broker: BrokerAddress = "",
    tenant: TenantName = "default",
) -> None:
    """Let a job that is suspended, failed, was cancelled or missed a tier go on from its last checkpoint."""

    async def go_on(client: Client) -> JobInfo:
        return await _said(client, await client.resume_job(job_id, max_epochs), wait=wait, as_json=as_json)

    job = run(Target(state_dir, broker, tenant), go_on)
    if as_json:
        print_json(job.to_json())
    if wait:
        exit_by([job])


def retry(
    job_id: JobId,
    *,
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Train from the beginning, as a new job that names this one.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow it to its end; exit code 3 if it fails, 4 if it misses a tier.")
    ] = False,
    as_json: AsJson = False,
    state_dir: StateDir = None,
    broker: BrokerAddress = "",
    tenant: TenantName = "default",
) -> None:
    """Start a job that is over again, from its last checkpoint, as another run under its id."""

    async def start(client: Client) -> JobInfo:
        job = await client.retry_job(job_id, from_scratch=from_scratch)
        if not as_json and job.id != job_id:
            typer.echo(f"A new job, {job.id}, since another training has its own curve and versions.", err=True)
        return await _said(client, job, wait=wait, as_json=as_json)

    job = run(Target(state_dir, broker, tenant), start)
    if as_json:
        print_json(job.to_json())
    if wait:
        exit_by([job])


def priority(
    job_id: ActiveJobId,
    number: Annotated[int, typer.Argument(metavar="N", min=-100, max=100, help="More goes first; 0 is the default.")],
    *,
    as_json: AsJson = False,
    state_dir: StateDir = None,
    broker: BrokerAddress = "",
    tenant: TenantName = "default",
) -> None:
    """Give a job that waits or runs another priority among the tenant's own."""
    job = run(Target(state_dir, broker, tenant), lambda client: client.set_priority(job_id, number))
    if as_json:
        print_json(job.to_json())
    else:
        typer.echo(f"{job.id} has priority {job.spec.priority}.")


async def _said(client: Client, job: JobInfo, *, wait: bool, as_json: bool) -> JobInfo:
    """A job that was let go on, told and perhaps followed to its end."""
    if not as_json:
        _say(job, as_json=False)
    return await follow_job(client, job.id, quiet=as_json) if wait else job


def _say(job: JobInfo, *, as_json: bool) -> None:
    if as_json:
        print_json(job.to_json())
    else:
        typer.echo(f"{job.id} is {job.state.value}" + (f": {clean(job.reason).rstrip('.')}." if job.reason else "."))


def explain(
    job_id: Annotated[str, typer.Argument(metavar="[JOB]", help=_ID, autocompletion=complete_job)] = "",
    *,
    endpoint: Annotated[
        str, typer.Option(metavar="NAME", help="An endpoint instead of a job.", autocompletion=complete_endpoint)
    ] = "",
    as_json: AsJson = False,
    state_dir: StateDir = None,
    broker: BrokerAddress = "",
    tenant: TenantName = "default",
) -> None:
    """Say why a job or an endpoint has its share, and what the scheduler decided before, newest first."""
    if bool(job_id) is bool(endpoint):
        fail("Name either a job, 'tiercel explain JOB', or an endpoint, 'tiercel explain --endpoint NAME'.")
    target = Target(state_dir, broker, tenant)
    explanation: Explanation | EndpointExplanation
    if endpoint:
        explanation = run(target, lambda client: client.explain_endpoint(endpoint))
        lines = endpoint_lines(explanation.endpoint)
    else:
        explanation = run(target, lambda client: client.explain_job(job_id))
        lines = [line for line in job_lines(explanation.job) if line.startswith(("job", "state", "share"))]
    if as_json:
        print_json(explanation.to_json())
        return
    typer.echo("\n".join(lines))
    if explanation.decisions:
        print_table(DECISION_COLUMNS, [decision_row(decision) for decision in explanation.decisions])
    else:
        typer.echo("The scheduler has not decided about it yet.")


def logs(
    job_id: JobId,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay until the job has finished.")] = False,
    state_dir: StateDir = None,
    broker: BrokerAddress = "",
    tenant: TenantName = "default",
) -> None:
    """Print the output of a job's training script."""

    async def print_logs(client: Client) -> None:
        async for chunk in client.logs(job_id, follow=follow):
            typer.echo(chunk, nl=False)

    run(Target(state_dir, broker, tenant), print_logs)
