"""``tiercel authority``: another authority takes the place of the broker's, while nodes stay joined."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.operator import as_operator
from tiercel.broker.cli.output import clean, print_json
from tiercel.broker.cli.parameters import broker_option, command, json_option, state_dir_option

if TYPE_CHECKING:
    from pathlib import Path

    from tiercel.core.authority import AuthorityState


@command("tiercel authority show")
@json_option
@state_dir_option
@broker_option
def show(*, as_json: bool, state_dir: Path | None, broker: str) -> None:
    """Show which authority there is, and how far its rotation is."""
    from tiercel.broker.client.authority import authority_state

    _print(as_operator(state_dir, broker, authority_state), as_json=as_json)


@command("tiercel authority rotate")
@json_option
@state_dir_option
@broker_option
def rotate(*, as_json: bool, state_dir: Path | None, broker: str) -> None:
    """Make a new authority: nodes get certificates by it, and the earlier one is believed for a week more."""
    from tiercel.broker.client.authority import rotate_authority

    _print(as_operator(state_dir, broker, rotate_authority), as_json=as_json)


@command("tiercel authority finish")
@click.option("--force", is_flag=True, help="Whoever that cuts off.")
@json_option
@state_dir_option
@broker_option
def finish(*, force: bool, as_json: bool, state_dir: Path | None, broker: str) -> None:
    """Believe the earlier authority no more, without waiting until the week is over."""
    from tiercel.broker.client.authority import finish_rotation

    found = as_operator(state_dir, broker, lambda connection: finish_rotation(connection, force=force))
    _print(found, as_json=as_json)


def _print(state: AuthorityState, *, as_json: bool) -> None:
    if as_json:
        print_json(state.to_json())
        return
    click.echo(f"Pin of the authority: {state.pin}")
    for line in words_of(state):
        click.echo(line)


def words_of(state: AuthorityState) -> list[str]:
    """What people are told of a rotation that is under way; nothing where none is."""
    if not state.earlier_pin:
        return []
    begun, ends = _moment(state.begun_at), _moment(state.ends_at)
    waits = f"it waits for {', '.join(map(clean, state.waiting))}" if state.waiting else "all nodes have turned to it"
    return [
        f"The authority of pin {state.earlier_pin} is being replaced since {begun}; {waits}.",
        f"Join lines, pins and files of that one are good until {ends} at least, or 'tiercel authority finish'.",
    ]


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="minutes")
