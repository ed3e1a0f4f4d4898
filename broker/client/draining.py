"""Waits until a node that is drained has nothing left: looks at what is there, again and again."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from tiercel.broker.client.membership import LeftThere
from tiercel.core.errors import NotFoundError, OverloadedError, UnavailableError, wrong_field
from tiercel.core.nodes import Drain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tiercel.core.status import ClusterStatus

LOOK_SECONDS = 1.0
ALONE_SECONDS = 10.0
"""A broker that began anew has heard of the other nodes by then."""


def left_on(status: ClusterStatus, node_id: str) -> LeftThere:
    """What a node has, of all tenants.

    Args:
        status: As the broker's operator is told.
        node_id: The node.

    Raises:
        InvalidSpecError: It is not drained any more, and so will not become empty.
        NotFoundError: It is not listed any more, which a node is that still has something.
    """
    node = next((each for each in status.nodes if each.id == node_id), None)
    if node is None:
        raise NotFoundError(f"node_id: there is no node {node_id!r} any more", field="node_id")
    if node.drain is Drain.NO:
        raise wrong_field("node_id", f"somebody had node {node_id!r} undrained meanwhile; drain it again")
    endpoints = tuple(each.name for each in status.endpoints if node_id in each.nodes)
    is_alone = all(each.id == node_id or each.drain is not Drain.NO for each in status.nodes)
    stays = node.jobs > 0 or bool(endpoints) if node.drain is Drain.MOVE else not node.jobs and bool(endpoints)
    return LeftThere(node.jobs, endpoints, is_stuck=is_alone and stays)


def only_on(status: ClusterStatus, node_id: str) -> tuple[str, ...]:
    """The endpoints of all tenants for which nobody but a node answers, by name.

    Args:
        status: As the broker's operator is told.
        node_id: The node.
    """
    return tuple(each.name for each in status.endpoints if node_id in each.nodes and not {*each.answering} - {node_id})


async def wait_until_empty(
    node_id: str,
    look: Callable[[], Awaitable[ClusterStatus]],
    seconds: float,
    tell: Callable[[float, LeftThere | None], None],
    clock: Callable[[], float] = time.monotonic,
) -> LeftThere:
    """Look once a second until nothing is left on a node, or nothing of it can go, or the time is over.

    Returns what is there then. Nothing has to be left at two looks in a row: a job whose start was decided just before
    is there at the second. That nothing can go has to be so for ten seconds.

    Args:
        node_id: A node that is drained.
        look: Asks the broker, with the operator's token.
        seconds: How long to wait; it is looked at once at least.
        tell: Called after the first look, and after each that finds something else than the one before, with the
            seconds that have passed and what is left; None while the broker, which may be away, does not answer.
        clock: Seconds of a steady clock.

    Raises:
        InvalidSpecError: The node is not drained any more.
        UnavailableError: The broker did not answer when the time was over; or it had too much to do (OverloadedError).
        TiercelError: What else the broker answered.
    """
    began = clock()
    seen: list[LeftThere | None] = []
    could_go_at = 0.0
    while True:
        found = await _found(node_id, look)
        left = found if isinstance(found, LeftThere) else None
        passed = clock() - began
        if left is None or not left.is_stuck:
            could_go_at = passed
        if seen[-1:] != [left]:
            tell(passed, left)
        elif left is not None and left.is_empty:
            return left
        if left is not None and passed - could_go_at >= ALONE_SECONDS:
            return left
        seen = [left]
        if passed >= seconds:
            if isinstance(found, LeftThere):
                return found
            raise found
        await asyncio.sleep(min(LOOK_SECONDS, seconds - passed))


async def _found(
    node_id: str, look: Callable[[], Awaitable[ClusterStatus]]
) -> LeftThere | UnavailableError | OverloadedError:
    try:
        return left_on(await look(), node_id)
    except NotFoundError:  # it was removed; a node that has something still is listed all the same
        return LeftThere(0, ())
    except (UnavailableError, OverloadedError) as error:
        return error
