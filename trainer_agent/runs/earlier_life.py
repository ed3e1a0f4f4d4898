"""What a killed agent leaves to its next life."""

from __future__ import annotations

from dataclasses import dataclass

from tiercel.trainer_agent.runtimes.contract import RunHandle
from tiercel.v1 import nodes_pb2


@dataclass(frozen=True, slots=True)
class EarlierLife:
    """What an earlier life of the agent has left of a run that goes on."""

    handle: RunHandle  # the run itself
    last_report: nodes_pb2.Progress | None = None  # the newest report that was taken in, if any was
