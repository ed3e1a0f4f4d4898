"""Commands for work on a machine: ``node drain``, ``node undrain``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tiercel.broker.cli.operator import as_operator
from tiercel.broker.cli.output import print_json
from tiercel.broker.cli.session import AsJson, BrokerAddress, StateDir

if TYPE_CHECKING:
    from tiercel.broker.client.membership import LeftThere

NodeName = Annotated[str, typer.Argument(help="The node's name.")]


def drain(
    node_id: NodeName,
    *,
    migrate: Annotated[
        bool,
        typer.Option("--migrate", help="Move what runs there to other nodes, with its checkpoints."),
    ] = False,
    as_json: AsJson = False,
    state_dir: StateDir = None,
    broker: BrokerAddress = "",
) -> None:
    """Let nothing new start on a node, such as before work on it; it answers for endpoints until another one does."""
    from tiercel.broker.client.membership import drain_node

    left = as_operator(state_dir, broker, lambda connection: drain_node(connection, node_id, migrate=migrate))
    if as_json:
        print_json({"node": node_id, "jobs": left.jobs, "endpoints": list(left.endpoints)})
        return
    typer.echo(f"Nothing new starts on node {node_id}. {_jobs(left.jobs, migrate=migrate)}")
    if left.endpoints:
        typer.echo(_endpoints(left))


def undrain(node_id: NodeName, *, state_dir: StateDir = None, broker: BrokerAddress = "") -> None:
    """Let jobs start on a node again."""
    from tiercel.broker.client.membership import undrain_node

    as_operator(state_dir, broker, lambda connection: undrain_node(connection, node_id))
    typer.echo(f"Jobs may start on node {node_id} again.")


def _jobs(count: int, *, migrate: bool) -> str:
    if not count:
        return "No job is there."
    jobs = "1 job is" if count == 1 else f"{count} jobs are"
    if migrate:
        return f"{jobs} there and {'goes' if count == 1 else 'go'} elsewhere, where there is room; see 'tiercel nodes'."
    return f"{jobs} there, and {'ends' if count == 1 else 'end'} by {'itself' if count == 1 else 'themselves'}."


def _endpoints(left: LeftThere) -> str:
    names = ", ".join(left.endpoints)
    return f"It goes on answering for {names} until another node does, or it is removed."
