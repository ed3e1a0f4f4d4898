"""What a run says of itself to whoever owns it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tiercel.trainer_agent.runs.records import RunRecord
from tiercel.v1 import nodes_pb2


@dataclass(slots=True)
class RunEvents:
    """Called by a run when something happens to it. None of it may block."""

    # It came into being; with its status.
    changed: Callable[[nodes_pb2.RunStatus], None] = field(default=lambda _: None)
    recorded: Callable[[RunRecord], None] = field(default=lambda _: None)  # what is to be remembered of it changed
    progressed: Callable[[nodes_pb2.Progress], None] = field(default=lambda _: None)  # its script reported
    # Its script said what it has used of accelerators; with its id, and the seconds so far.
    used: Callable[[str, float], None] = field(default=lambda _run_id, _seconds: None)
    wrote: Callable[[], None] = field(default=lambda: None)  # it wrote output
    limits_changed: Callable[[], None] = field(default=lambda: None)  # paces may have to be worked out anew
