"""What is traced: parts of jobs' lives, and requests from node to node. :mod:`.tracing` says whether anything is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager


@dataclass(frozen=True, slots=True)
class JobSpan:
    """A part of a job's life."""

    job_id: str  # the job: all of its spans are one trace, whose id follows from it
    name: str  # what happened
    begin: float  # when it began, seconds since the Unix epoch
    end: float  # when it was over
    attributes: Mapping[str, str | int | float] = field(default_factory=dict)  # what else there is to say
    error: str = ""  # why it failed; empty where it did not
    is_first: bool = False  # whether the others are its children


class RequestSpan(Protocol):
    """A request, from its arrival to its answer."""

    @property
    def traceparent(self) -> str:
        """What whoever is asked on its behalf is told, as W3C Trace Context has it."""

    def current(self) -> AbstractContextManager[object]:
        """What is logged within the block names it, and so does what it starts while it is not over."""

    def leads_to(self, job_id: str) -> None:
        """It made a job, or asked for one that was there: whoever looks at it finds the job's trace."""

    def end(self, error: str = "") -> None:
        """It was answered; ``error``: why it was not. Said again it changes nothing."""


class Tracing(Protocol):
    """Makes the spans of one process."""

    def begin(
        self, name: str, trace_context: Mapping[str, str], arrived: float, attributes: Mapping[str, str]
    ) -> RequestSpan:
        """A request has arrived.

        Args:
            name: What it asks for; few different ones.
            trace_context: Its ``traceparent`` and ``tracestate``, if it has any; what is malformed counts as none.
            arrived: When, as ``time.perf_counter`` has it; 0 for now.
            attributes: What else there is to say.
        """

    def add(self, span: JobSpan) -> None:
        """A part of a job's life is over."""

    def close(self) -> None:
        """Send what is left, for two seconds at most: a collector that is silent holds nobody up."""
