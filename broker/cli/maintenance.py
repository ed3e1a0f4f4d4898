"""Commands for work on a machine: ``node drain``, ``node undrain``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.exit_codes import NOT_EMPTY, USAGE
from tiercel.broker.cli.operator import as_operator
from tiercel.broker.cli.output import print_json
from tiercel.broker.cli.parameters import broker_option, command, json_option, state_dir_option
from tiercel.broker.cli.session import fail
from tiercel.core.durations import in_words, seconds_in

if TYPE_CHECKING:
    from pathlib import Path

    from tiercel.broker.client.connection import Connection
    from tiercel.broker.client.membership import LeftThere


_WAIT = "10m"
_NAMES_SHOWN = 5


@command("tiercel node drain n2 --migrate --wait --timeout 30m")
@click.argument("node_id", help="The node's name.")
@click.option("--migrate", is_flag=True, help="Move what runs there to other nodes, with its checkpoints.")
@click.option("--wait", is_flag=True, help="Return when nothing is left there; exit code 5 if it takes too long.")
@click.option("--timeout", default="", help="How long to wait.", show_default=_WAIT)
@json_option
@state_dir_option
@broker_option
def drain(
    node_id: str, *, migrate: bool, wait: bool, timeout: str, as_json: bool, state_dir: Path | None, broker: str
) -> None:
    """Let nothing new start on a node, such as before work on it; it answers for endpoints until another one does."""
    from tiercel.broker.client.draining import wait_until_empty
    from tiercel.broker.client.membership import drain_node
    from tiercel.broker.client.status import cluster_status

    seconds = _seconds(timeout, wait=wait)

    async def emptied(connection: Connection) -> LeftThere:
        left = await drain_node(connection, node_id, migrate=migrate)
        if not as_json:
            _tell(node_id, left, migrate=migrate)
        return await wait_until_empty(node_id, lambda: cluster_status(connection), seconds, _progress) if wait else left

    left = as_operator(state_dir, broker, emptied)
    if as_json:
        print_json({"node": node_id, "jobs": left.jobs, "endpoints": list(left.endpoints), "empty": left.is_empty})
    if not wait:
        return
    if left.is_stuck:
        fail(
            f"node {node_id} has {_named(left)} left, and no other node takes anything: let another machine join "
            "('tiercel node token') or undrain one. It stays drained; 'tiercel node undrain "
            f"{node_id}' ends that.",
            NOT_EMPTY,
        )
    if not left.is_empty:
        fail(
            f"after {in_words(seconds)}, node {node_id} has {_named(left)} left; it stays drained. 'tiercel explain "
            "JOB' tells a job's tenant why it is there. Endpoints with variants, or for which no other node is, stay.",
            NOT_EMPTY,
        )
    if not as_json:
        click.echo(f"Nothing is left on node {node_id}.")


@command("tiercel node undrain n2")
@click.argument("node_id", help="The node's name.")
@state_dir_option
@broker_option
def undrain(node_id: str, *, state_dir: Path | None, broker: str) -> None:
    """Let jobs start on a node again."""
    from tiercel.broker.client.membership import undrain_node

    as_operator(state_dir, broker, lambda connection: undrain_node(connection, node_id))
    click.echo(f"Jobs may start on node {node_id} again.")


def _seconds(timeout: str, *, wait: bool) -> float:
    if timeout and not wait:
        fail("--timeout says how long --wait waits; give that as well.", USAGE)
    try:
        return seconds_in(timeout or _WAIT)
    except ValueError as error:
        fail(f"--timeout: {error}.", USAGE)


def _tell(node_id: str, left: LeftThere, *, migrate: bool) -> None:
    click.echo(f"Nothing new starts on node {node_id}. {_jobs(left.jobs, migrate=migrate)}")
    if left.endpoints:
        click.echo(f"It goes on answering for {', '.join(left.endpoints)} until another node does, or it is removed.")


def _progress(passed: float, left: LeftThere | None) -> None:
    """A line for whoever watches; what programs read stays free of it."""
    said = "the broker does not answer; waiting goes on" if left is None else f"left: {_named(left)}"
    click.echo(f"{passed:5.0f} s  {said}", err=True)


def _named(left: LeftThere) -> str:
    parts = ["1 job" if left.jobs == 1 else f"{left.jobs} jobs"] if left.jobs else []
    if left.endpoints:
        more = len(left.endpoints) - _NAMES_SHOWN
        names = ", ".join(left.endpoints[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
        parts.append(f"endpoint{'s' if len(left.endpoints) > 1 else ''} {names}")
    return " and ".join(parts) or "nothing"


def _jobs(count: int, *, migrate: bool) -> str:
    if not count:
        return "No job is there."
    jobs = "1 job is" if count == 1 else f"{count} jobs are"
    if migrate:
        return f"{jobs} there and {'goes' if count == 1 else 'go'} elsewhere, where there is room; see 'tiercel nodes'."
    return f"{jobs} there, and {'ends' if count == 1 else 'end'} by {'itself' if count == 1 else 'themselves'}."
