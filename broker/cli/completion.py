"""What the shell offers for a job's id or an endpoint's name: what the broker knows, if it answers at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import typer

from tiercel.broker.cli.session import Target, open_client

if TYPE_CHECKING:
    from tiercel.broker.client import Client

# Somebody has pressed a key and waits.
_SECONDS = 1.0

Offers = list[tuple[str, str]]


def complete_job(ctx: typer.Context, incomplete: str) -> Offers:
    """Ids of the tenant's jobs that begin like this, the latest first, each with its state and name."""
    return _offers(ctx, incomplete, _jobs)


def complete_active_job(ctx: typer.Context, incomplete: str) -> Offers:
    """The same of jobs that have not finished."""
    return _offers(ctx, incomplete, _active_jobs)


def complete_endpoint(ctx: typer.Context, incomplete: str) -> Offers:
    """Names of the tenant's endpoints that begin like this."""
    return _offers(ctx, incomplete, _endpoints)


async def _jobs(client: Client, *, active_only: bool = False) -> Offers:
    jobs = reversed(await client.list_jobs(active_only=active_only))
    return [(job.id, f"{job.state.value} {job.spec.name}") for job in jobs]


async def _active_jobs(client: Client) -> Offers:
    return await _jobs(client, active_only=True)


async def _endpoints(client: Client) -> Offers:
    return [(endpoint.name, "") for endpoint in await client.list_endpoints()]


def _offers(ctx: typer.Context, incomplete: str, ask: Callable[[Client], Awaitable[Offers]]) -> Offers:
    given = ctx.params
    target = Target(given.get("state_dir"), given.get("broker") or "", given.get("tenant") or "default")

    async def offers() -> Offers:
        async with asyncio.timeout(_SECONDS), open_client(target) as client:
            return await ask(client)

    try:
        known = asyncio.run(offers())
    except Exception:  # whatever it is: told in the middle of a command line, it helps nobody
        return []
    return [(word, _plain(about)) for word, about in known if word.startswith(incomplete)]


def _plain(text: str) -> str:
    # Shells take each line for an offer, and some of them control characters for commands.
    return "".join(character for character in text if character.isprintable())
