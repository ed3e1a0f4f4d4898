"""What a version that was judged waits for on other nodes before it is announced, in plain words: pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiercel.core.figures import size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tiercel.broker.lifecycle.versions import VersionFiles
    from tiercel.core.endpoints import Moved


@dataclass(frozen=True, slots=True)
class Awaited:
    """A version that other nodes are waited for with."""

    files: VersionFiles  # the version
    home: str  # the node that delivers it
    nodes: tuple[str, ...]  # those that are waited for
    seconds: float  # for how long they have been
    limit_seconds: float  # for how long they are
    answers: bool = False  # whether it answers on its home already, and the others have copies


def awaited_words(awaited: Awaited, *, is_held: bool, arrived: Moved | None, fetched: Mapping[str, Moved]) -> str:
    """What is waited for, and how far that is.

    Args:
        awaited: The version.
        is_held: Whether the broker has all of its files.
        arrived: What the broker has of them by now, while they come from its home.
        fetched: What nodes have fetched of them from the broker, while they do.
    """
    is_one = len(awaited.nodes) == 1
    where = f"{'node' if is_one else 'nodes'} {', '.join(awaited.nodes)}"
    if awaited.answers:
        said = f"answers on node {awaited.home}, and is announced once {where} {'does' if is_one else 'do'} as well"
    else:
        progress = _progress(awaited, is_held=is_held, arrived=arrived, fetched=fetched)
        said = f"waits for its {'copy' if is_one else 'copies'} on {where}: {progress}"
    patience = f"for {awaited.seconds:.0f} s, at most {awaited.limit_seconds:.0f} s"
    return f"version {awaited.files.version} {said}; {patience}"


def _progress(awaited: Awaited, *, is_held: bool, arrived: Moved | None, fetched: Mapping[str, Moved]) -> str:
    if not is_held:
        much = f"{size(arrived.bytes)} of {size(arrived.of_bytes)}" if arrived is not None else "nothing yet"
        return f"node {awaited.home} has sent the broker {much}"
    told = [
        f"node {name} has fetched {size(moved.bytes)} of {size(moved.of_bytes)}"
        for name in awaited.nodes
        if (moved := fetched.get(name)) is not None
    ]
    return ", ".join(told) or "the broker has it for that"
