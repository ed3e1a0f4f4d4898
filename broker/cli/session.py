"""What all commands that talk to a broker share: where it is, who asks, and how errors end the command."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from tiercel.broker.cli.exit_codes import FAILED, INTERRUPTED, JOB_FAILED, TIERS_MISSED

if TYPE_CHECKING:
    from pathlib import Path

    from tiercel.broker.client import Client, JobInfo
    from tiercel.core.errors import InvalidSpecError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """Which broker is meant, and on whose behalf."""

    state_dir: Path | None  # the state directory, or None for the default one
    broker: str  # ``host:port``, or empty for the one of the state directory
    tenant: str  # whose token to use


def run(target: Target, action: Callable[[Client], Awaitable[T]]) -> T:
    """Run ``action`` with a client; ends the command with a sentence if it fails."""

    async def with_client() -> T:
        async with open_client(target) as client:
            return await action(client)

    return run_to_the_end(with_client())


def run_to_the_end(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine; ends the command with a sentence if it fails, and quietly if it is interrupted."""
    try:
        # Each help and each completion does without.
        import asyncio

        from tiercel.core.errors import InvalidSpecError, TiercelError

        try:
            return asyncio.run(coroutine)
        except InvalidSpecError as error:
            fail(_as_written(error))
        except TiercelError as error:
            fail(error.message)
    except KeyboardInterrupt:
        coroutine.close()  # of one that was not begun yet Python would say so
        raise click.exceptions.Exit(INTERRUPTED) from None


def _as_written(error: InvalidSpecError) -> str:
    """Its sentence, with the field by the name that a spec has for it."""
    from tiercel.broker.client.spec_file import as_written

    return error.message.replace(error.field, as_written(error.field), 1) if error.field else error.message


def exit_by(jobs: Iterable[JobInfo]) -> None:
    """End the command with the code that says what became of jobs that were waited for; return if all went well."""
    from tiercel.core.jobs import JobState

    states = {job.state for job in jobs}
    if states - {JobState.COMPLETED, JobState.MISSED}:
        raise click.exceptions.Exit(JOB_FAILED)
    if JobState.MISSED in states:
        raise click.exceptions.Exit(TIERS_MISSED)


def fail(message: str, code: int = FAILED) -> NoReturn:
    """End the command with a sentence on standard error."""
    click.echo(f"Error: {message}", err=True)
    raise click.exceptions.Exit(code)


def open_client(target: Target) -> Client:
    """A client that is to be entered.

    Raises:
        TiercelError: It is not known where the broker is, or whose token to use.
    """
    # gRPC takes a third of a second to import; 'tiercel --help' does without.
    from tiercel.broker.client import Client
    from tiercel.broker.client.given_token import given_token
    from tiercel.broker.client.state_dir import default_state_dir, read_broker, read_token

    folder = target.state_dir or default_state_dir()
    # The environment says how a broker that is named is known.
    address, trust = (target.broker, None) if target.broker else read_broker(folder)
    token = given_token(os.environ) or read_token(folder, target.tenant)
    return Client(address, token=token, trust=trust)
