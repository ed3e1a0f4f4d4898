"""``tiercel audit``: who changed what and who was refused, for the broker's operator."""

from __future__ import annotations

import time
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.exit_codes import USAGE
from tiercel.broker.cli.operator import as_operator
from tiercel.broker.cli.output import clean, print_json, print_table
from tiercel.broker.cli.parameters import broker_option, command, json_option, state_dir_option
from tiercel.broker.cli.session import fail
from tiercel.core.audit import AuditRow, AuditStart, ChainCheck, calls_of
from tiercel.core.durations import seconds_in

if TYPE_CHECKING:
    from pathlib import Path

    from tiercel.broker.client.connection import Connection

_COLUMNS = ("WHEN", "CALLER", "TENANT", "ROLE", "METHOD", "OBJECT", "OUTCOME", "FROM")


@command("tiercel audit --since 2h", "tiercel audit --check")
@click.option(
    "--since",
    default="",
    help="Leaves out what was before: so long ago (2h, 7d), or a date (2026-11-23, with time if you like).",
)
@click.option("--check", is_flag=True, help="Only check that no row was changed or taken away.")
@json_option
@state_dir_option
@broker_option
def audit(*, since: str, check: bool, as_json: bool, state_dir: Path | None, broker: str) -> None:
    """List who changed what and who was refused, as the broker's operator."""
    begin = 0.0 if check else _moment_of(since)

    async def read(connection: Connection) -> tuple[AuditStart, list[AuditRow]]:
        from tiercel.broker.client.audit import read_audit

        start, rows = AuditStart(), list[AuditRow]()
        async with aclosing(read_audit(connection, begin)) as told:
            async for each in told:
                if isinstance(each, AuditStart):
                    start = each
                else:
                    rows.append(each)
        return start, rows

    start, rows = as_operator(state_dir, broker, read)
    if check:
        _check(start, rows, as_json=as_json)
        return
    calls = sorted(calls_of(rows), key=lambda call: call.number)
    if as_json:
        print_json([call.to_json() for call in calls])
    elif calls:
        print_table(_COLUMNS, [_row(call) for call in calls])
    else:
        click.echo("Nothing was changed, and nobody was refused.", err=True)


def _check(start: AuditStart, rows: list[AuditRow], *, as_json: bool) -> None:
    found = ChainCheck(start)
    for row in rows:
        found.add(row)
    if as_json:
        print_json({"rows": found.rows, "gone": start.number, "problem": found.problem, "sha256": found.sha256})
    elif not found.problem:
        gone = f" {start.number} older ones, up to {_when(start.until)}, are kept no more." if start.number else ""
        click.echo(f"{found.rows} rows, none changed and none missing.{gone} SHA-256 of the last: {found.sha256}")
    if found.problem:
        fail(f"The audit log was tampered with: {found.problem}.")


def _moment_of(since: str) -> float:
    if not since:
        return 0.0
    try:
        return time.time() - seconds_in(since)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(since)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        fail(f"--since: {since!r} is no time; write how long ago, such as 2h or 7d, or a date, 2026-11-23.", USAGE)


def _row(call: AuditRow) -> tuple[str, ...]:
    words = (call.caller, call.tenant, call.role, call.method, call.object, call.outcome, call.peer)
    return (_when(call.at), *(clean(word) or "-" for word in words))


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
