"""``tiercel watch``: a live table on a terminal, a line for each event elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, aclosing
from typing import TYPE_CHECKING, Protocol

import click

from tiercel.broker.cli.completion import complete_job
from tiercel.broker.cli.output import clean, is_terminal
from tiercel.broker.cli.parameters import command, json_option, target_options
from tiercel.broker.cli.session import Target, exit_by, run

if TYPE_CHECKING:
    from rich.live import Live

    from tiercel.broker.cli.job_view import WatchedJob
    from tiercel.broker.client import Client, JobEvent, JobInfo


# Of jobs that nobody named, so that those which run are not pushed off the screen.
_FINISHED_SHOWN = 3
# Lines of the output of a job that failed.
_OUTPUT_SHOWN = 5


@command("tiercel watch", "tiercel watch JOB --json")
@click.argument(
    "job_ids", nargs=-1, metavar="[JOB]...", help="All of the tenant's if none.", shell_complete=complete_job
)
@json_option
@target_options
def watch(job_ids: tuple[str, ...], *, as_json: bool, target: Target) -> None:
    """Follow jobs as they learn.

    Ends when all the jobs named have finished, or at Ctrl-C if none was
    named. Exit code 3: one of them failed; 4: one missed a tier.
    With --json each event is a line.
    """

    async def follow(client: Client) -> list[JobInfo]:
        jobs = [await client.get_job(job_id) for job_id in job_ids] if job_ids else await client.list_jobs()
        screen = _JsonLines() if as_json else _screen(None if job_ids else _FINISHED_SHOWN)
        return await _follow(client, jobs, screen, named=bool(job_ids))

    finished = run(target, follow)
    if not as_json:
        _say_last_output(finished)
    exit_by(finished)


async def follow_job(client: Client, job_id: str, *, quiet: bool) -> JobInfo:
    """Show what happens to one job until it has finished.

    Args:
        client: An open client.
        job_id: The job.
        quiet: Show nothing.

    Returns:
        The job in its final state.
    """
    screen = _Nothing() if quiet else _screen(None)
    (job,) = await _follow(client, [await client.get_job(job_id)], screen, named=True)
    if not quiet:
        _say_last_output([job])
    return job


def _say_last_output(jobs: Iterable[JobInfo]) -> None:
    """The lines that say, as a rule, why a script failed."""
    from tiercel.core.jobs import JobState

    for job in jobs:
        lines = clean(job.log_tail).splitlines() if job.state is JobState.FAILED else []
        if lines:
            click.echo(f"Last output of {job.id} ('tiercel logs {job.id}' has all of it):")
            click.echo("\n".join(f"  {line}" for line in lines[-_OUTPUT_SHOWN:]))


class _Screen(Protocol):
    def show(self, views: Iterable[WatchedJob]) -> None: ...

    def show_event(self, event: JobEvent, view: WatchedJob) -> None: ...

    def close(self) -> None: ...


async def _follow(client: Client, jobs: Iterable[JobInfo], screen: _Screen, *, named: bool) -> list[JobInfo]:
    from tiercel.broker.cli.job_view import WatchedJob

    views = {job.id: WatchedJob(job) for job in jobs}
    # Those that had finished before are shown as they are: their events are history.
    over = {job_id for job_id, view in views.items() if view.job.state.is_final}
    with ExitStack() as stack:
        stack.callback(screen.close)
        screen.show(views.values())
        only = next(iter(views)) if named and len(views) == 1 else ""
        if not (named and len(over) == len(views)):
            async with aclosing(client.events(job_id=only)) as events:
                async for event in events:
                    if event.job_id in over or (named and event.job_id not in views):
                        continue
                    if event.job_id not in views:
                        views[event.job_id] = WatchedJob(await client.get_job(event.job_id))
                    views[event.job_id] = views[event.job_id].after(event)
                    screen.show_event(event, views[event.job_id])
                    screen.show(views.values())
                    # The stream of one job ends by itself; that of all of them does not.
                    if named and not only and await _are_over(client, views):
                        break
        final = [await client.get_job(job_id) for job_id in views] if named else []
        screen.show([WatchedJob(job, views[job.id].first_value) for job in final] or views.values())
    return final


async def _are_over(client: Client, views: Mapping[str, WatchedJob]) -> bool:
    """Whether all have ended, and not only once before they were resumed."""
    if not all(view.job.state.is_final for view in views.values()):
        return False
    return all([(await client.get_job(job_id)).state.is_final for job_id in views])


def _screen(most_finished: int | None) -> _Screen:
    return _Table(most_finished) if is_terminal() else _Lines()


class _Nothing:
    """Shows nothing."""

    def show(self, views: Iterable[WatchedJob]) -> None:
        """Nothing."""

    def show_event(self, event: JobEvent, view: WatchedJob) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class _Lines(_Nothing):
    """A line for each event."""

    def show_event(self, event: JobEvent, view: WatchedJob) -> None:
        """Print it."""
        from tiercel.broker.cli.job_view import event_line

        click.echo(event_line(event, view.job.spec.name))


class _JsonLines(_Nothing):
    """A JSON object for each event."""

    def show_event(self, event: JobEvent, view: WatchedJob) -> None:
        """Print it."""
        click.echo(json.dumps(event.to_json(), ensure_ascii=False))


class _Table(_Nothing):
    """A table that is drawn again when something changes, a few times a second at most."""

    def __init__(self, most_finished: int | None) -> None:
        from rich.live import Live

        self._most_finished = most_finished
        self._live: Live = Live(auto_refresh=True, refresh_per_second=4)
        self._live.start()

    def show(self, views: Iterable[WatchedJob]) -> None:
        """Draw it."""
        from tiercel.broker.cli.watch_table import WatchTable

        self._live.update(WatchTable(list(views), self._most_finished))

    def close(self) -> None:
        """Leave the last state on the screen."""
        self._live.stop()
