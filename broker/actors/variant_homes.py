"""Which node the variants of an endpoint are on: pure, for the scheduler's snapshots.

One inference server answers for an endpoint, so that all of its variants have to be on one node: the one where a
version of it answers, else the one where a job that feeds it runs. Until that is known only the first of its jobs is
shown to the policy, and the others follow it. A job goes to another node only where the variants have gone before it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tiercel.broker.scheduling.interface import JobView


def with_homes(jobs: Iterable[JobView], node_of: Callable[[str], str]) -> tuple[list[JobView], dict[str, str]]:
    """The jobs as a policy may see them, and why others are not shown, by job.

    Args:
        jobs: All that need a node.
        node_of: The node on which an endpoint answers, online or not; empty while none does.
    """
    views = list(jobs)
    homes = _homes([view for view in views if view.variant], node_of)
    shown: list[JobView] = []
    held_back: dict[str, str] = {}
    for view in views:
        home, first = homes[view.endpoint] if view.variant else ("", view.id)
        if home and view.home not in {"", home}:
            held_back[view.id] = (
                f"can never start: what it starts from is on node {view.home}, and the variants of endpoint "
                f"{view.endpoint} are on node {home}; cancel it"
            )
        elif home:
            shown.append(replace(view, home=home, migratable=view.migratable and home != view.node_id))
        elif view.id == first:
            shown.append(replace(view, migratable=view.migratable and not view.variant))
        else:
            held_back[view.id] = f"waits until job {first}, another variant of endpoint {view.endpoint}, has a node"
    return shown, held_back


def _homes(jobs: list[JobView], node_of: Callable[[str], str]) -> dict[str, tuple[str, str]]:
    """By endpoint: its node, or empty, and the job that goes first."""
    homes: dict[str, tuple[str, str]] = {}
    for view in sorted(jobs, key=lambda job: (job.movable, job.submitted_at, job.id)):
        if view.endpoint not in homes:
            # One that waits may have a checkpoint somewhere, but goes on without it where that node is gone.
            runs_on = "" if view.movable else view.node_id
            homes[view.endpoint] = (node_of(view.endpoint) or runs_on, view.id)
    return homes
