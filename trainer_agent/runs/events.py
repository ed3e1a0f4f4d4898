"""What a run says of itself to whoever owns it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tiercel.trainer_agent.runs.records import RunRecord
from tiercel.v1 import nodes_pb2


@dataclass(slots=True)
class RunEvents:
    """Called by a run when something happens to it. None of it may block.

    Attributes:
        changed: It came into being; with its status.
        recorded: What is to be remembered of it changed.
        progressed: Its script reported.
        used: Its script said what it has used of accelerators; with its id, and the seconds so far.
        wrote: It wrote output.
        limits_changed: Paces may have to be worked out anew.
    """

    changed: Callable[[nodes_pb2.RunStatus], None] = field(default=lambda _: None)
    recorded: Callable[[RunRecord], None] = field(default=lambda _: None)
    progressed: Callable[[nodes_pb2.Progress], None] = field(default=lambda _: None)
    used: Callable[[str, float], None] = field(default=lambda _run_id, _seconds: None)
    wrote: Callable[[], None] = field(default=lambda: None)
    limits_changed: Callable[[], None] = field(default=lambda: None)
