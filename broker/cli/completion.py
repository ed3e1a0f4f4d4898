"""What the shell offers for a job's id or an endpoint's name.

Somebody has pressed a key and waits, so no broker is asked: what is offered was kept in a small file. If that is not
from just now, a process in the background asks, for the next time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tiercel.broker.cli.session import Target

if TYPE_CHECKING:
    from collections.abc import Iterable

    from click.shell_completion import CompletionItem

    from tiercel.broker.cli.completion_file import Known


def complete_job(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of the tenant's jobs that begin like this, the latest first, each with its state and name."""
    return _offers(incomplete, ((job.id, job.about) for job in _known(ctx).jobs))


def complete_active_job(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The same of jobs that have not finished."""
    return _offers(incomplete, ((job.id, job.about) for job in _known(ctx).jobs if job.active))


def complete_endpoint(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of the tenant's endpoints that begin like this."""
    return _offers(incomplete, ((name, "") for name in _known(ctx).endpoints))


def _known(ctx: click.Context) -> Known:
    from tiercel.broker.cli import completion_file

    given = ctx.params
    target = Target(given.get("state_dir"), given.get("broker") or "", given.get("tenant") or "default")
    try:
        known = completion_file.read(target)
        if not known.is_fresh:
            completion_file.renew_in_background(target)
    except Exception:  # whatever it is: told in the middle of a command line, it helps nobody
        return completion_file.NOTHING
    return known


def _offers(incomplete: str, words: Iterable[tuple[str, str]]) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(word, help=about or None) for word, about in words if word.startswith(incomplete)]
