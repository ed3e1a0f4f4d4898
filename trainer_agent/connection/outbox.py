"""What goes to the broker over one stream. Facts are kept elsewhere; what is in here may be lost with the stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from tiercel.trainer_agent.reports.kept import KeptReports
from tiercel.trainer_agent.reports.run_log import RunLog
from tiercel.v1 import nodes_pb2

# Of each run, sent and not confirmed; see Taken in the contract.
UNCONFIRMED_REPORTS: Final = 256
_CHUNK_BYTES: Final = 64 * 1024
_GATHER_SECONDS: Final = 0.05


class RunFacts(Protocol):
    """What is kept of runs, for whoever reports it. None of it may block for long."""

    def log(self, run_id: str) -> RunLog | None:
        """The output of a run; None for a run that nobody knows, or that has none."""

    def reports(self, run_id: str) -> KeptReports | None:
        """What the script of a run has reported; None for a run that nobody knows."""


@dataclass(slots=True)
class _Lane:
    """How far one run was reported over this stream."""

    sent: int = 0  # sequence of its last report that was sent, or that the broker has
    unconfirmed: deque[int] = field(default_factory=deque)  # sequences of those that the broker has not confirmed
    output: int | None = None  # bytes that were sent; None while the broker did not ask for it
    end: nodes_pb2.RunStatus | None = None  # still to be sent


class Outbox:
    """What is still to be said over one stream, the most pressing first.

    A heartbeat goes before everything, then news of runs, deliveries and serving, of each the latest only. Then, run by
    run in turn, the reports that the broker lacks and, after all of them and all output, the end of a run. The output
    of runs goes when there is nothing else. Nothing in here grows with what a script does.
    """

    def __init__(self, facts: RunFacts, heartbeat: Callable[[], nodes_pb2.Heartbeat]) -> None:
        self._facts = facts
        self._heartbeat = heartbeat
        self._heartbeat_due = False
        self._news: dict[tuple[str, str], nodes_pb2.ConnectRequest] = {}
        self._lanes: dict[str, _Lane] = {}
        # Runs in the order in which it is their turn; one that has nothing to tell now is not in here.
        self._reporting: dict[str, None] = {}
        self._writing: dict[str, None] = {}
        self._changed = asyncio.Event()
        self._output_grew = asyncio.Event()

    def begin(self, reports: Mapping[str, int], ended: Iterable[nodes_pb2.RunStatus]) -> None:
        """The broker said what it has.

        Args:
            reports: Of each run that it knows: the sequence of the last report that it has.
            ended: How runs ended; told of those that it knows.
        """
        for run_id, sequence in reports.items():
            lane = self._lane(run_id)
            lane.sent = max(lane.sent, sequence)
            self._reporting[run_id] = None
        for status in ended:
            if status.run_id in reports:
                self.put_end(status)
        self._changed.set()

    def confirm(self, reports: Mapping[str, int]) -> None:
        """The broker has all reports of runs up to these sequences."""
        for run_id, sequence in reports.items():
            lane = self._lanes.get(run_id)
            if lane is None:
                continue
            while lane.unconfirmed and lane.unconfirmed[0] <= sequence:
                lane.unconfirmed.popleft()
            self._reporting[run_id] = None
        self._changed.set()

    def want_heartbeat(self) -> None:
        """Send a heartbeat next, unless one waits to be sent already."""
        self._heartbeat_due = True
        self._changed.set()

    def put_news(self, subject: tuple[str, str], message: nodes_pb2.ConnectRequest) -> None:
        """Say this soon, in place of what was not said yet of the same subject: its kind and its id."""
        self._news.pop(subject, None)
        self._news[subject] = message
        self._changed.set()

    def put_end(self, status: nodes_pb2.RunStatus) -> None:
        """Say how a run ended, after its reports and what is left of its output."""
        self._lane(status.run_id).end = status
        self._wake(status.run_id)

    def open_run(self, run_id: str) -> None:
        """Tell what a run reports from now on."""
        self._lane(run_id)

    def note_report(self, run_id: str) -> None:
        """A run has reported."""
        if run_id in self._lanes:
            self._reporting[run_id] = None
            self._changed.set()

    def know_output(self, run_id: str, sent_bytes: int) -> None:
        """Begin to send a run's output; said again it changes nothing.

        Args:
            run_id: The run.
            sent_bytes: How much of it the broker has.
        """
        lane = self._lane(run_id)
        if lane.output is None:
            lane.output = sent_bytes
            self._wake(run_id)

    def forget_others(self, run_ids: Iterable[str]) -> None:
        """The broker wants these runs: nothing that is left to tell of others matters."""
        for run_id in self._lanes.keys() - set(run_ids):
            if self._facts.reports(run_id) is None:
                del self._lanes[run_id]

    def note_output(self) -> None:
        """Some run wrote output."""
        self._output_grew.set()

    async def gather_output(self) -> None:
        """Have the output of runs sent as it grows, a good piece at a time, for ever."""
        while True:
            await self._output_grew.wait()
            self._output_grew.clear()
            for run_id, lane in self._lanes.items():
                if lane.output is not None:
                    self._writing[run_id] = None
            self._changed.set()
            await asyncio.sleep(_GATHER_SECONDS)

    async def get(self) -> nodes_pb2.ConnectRequest:
        """The next message."""
        while (message := self._next()) is None:
            self._changed.clear()
            await self._changed.wait()
        return message

    async def wait_empty(self) -> None:
        """Wait until everything was taken out, reports that wait for the broker's word aside."""
        while (  # noqa: ASYNC110 - asked once, when the agent leaves
            self._heartbeat_due
            or self._news
            or self._reporting
            or self._writing
            or any(lane.end is not None for lane in self._lanes.values())
        ):
            await asyncio.sleep(_GATHER_SECONDS)

    def _lane(self, run_id: str) -> _Lane:
        return self._lanes.setdefault(run_id, _Lane())

    def _wake(self, run_id: str) -> None:
        self._reporting[run_id] = None
        self._writing[run_id] = None
        self._changed.set()

    def _next(self) -> nodes_pb2.ConnectRequest | None:
        if self._heartbeat_due:
            self._heartbeat_due = False
            return nodes_pb2.ConnectRequest(heartbeat=self._heartbeat())
        if self._news:
            return self._news.pop(next(iter(self._news)))
        return self._in_turn(self._reporting, self._next_report) or self._in_turn(self._writing, self._next_output)

    def _in_turn(
        self, turns: dict[str, None], take: Callable[[str, _Lane], nodes_pb2.ConnectRequest | None]
    ) -> nodes_pb2.ConnectRequest | None:
        """The message of whoever has one and waited longest; who has none leaves the line."""
        while turns:
            run_id = next(iter(turns))
            del turns[run_id]
            lane = self._lanes.get(run_id)
            message = take(run_id, lane) if lane is not None else None
            if message is not None:
                turns[run_id] = None
                return message
        return None

    def _next_report(self, run_id: str, lane: _Lane) -> nodes_pb2.ConnectRequest | None:
        kept = self._facts.reports(run_id)
        progress = kept.after(lane.sent) if kept is not None else None
        if progress is None:
            return self._next_end(run_id, lane)
        if len(lane.unconfirmed) >= UNCONFIRMED_REPORTS:
            return None
        lane.sent = progress.sequence
        lane.unconfirmed.append(progress.sequence)
        return nodes_pb2.ConnectRequest(progress=progress)

    def _next_end(self, run_id: str, lane: _Lane) -> nodes_pb2.ConnectRequest | None:
        if lane.end is None or self._output_left(run_id, lane, 1)[1]:
            return None
        status, lane.end = lane.end, None
        return nodes_pb2.ConnectRequest(run=status)

    def _next_output(self, run_id: str, lane: _Lane) -> nodes_pb2.ConnectRequest | None:
        begin, data = self._output_left(run_id, lane, _CHUNK_BYTES)
        if not data:
            # Its end may have waited for that.
            return self._next_report(run_id, lane) if lane.end is not None else None
        chunk = nodes_pb2.LogChunk(run_id=run_id, offset_bytes=begin, data=data)
        lane.output = begin + len(data)
        return nodes_pb2.ConnectRequest(log=chunk)

    def _output_left(self, run_id: str, lane: _Lane, limit: int) -> tuple[int, bytes]:
        """Where what is left of its output begins, and some of it."""
        log = self._facts.log(run_id)
        return log.read(lane.output, limit) if log is not None and lane.output is not None else (0, b"")


class Reporter:
    """Brings news to the broker while there is a stream; without one nothing is lost, see the hello."""

    def __init__(self) -> None:
        self._outbox: Outbox | None = None

    async def wait_said(self) -> None:
        """Wait until everything that was reported so far has been handed to the stream, if there is one."""
        if self._outbox is not None:
            await self._outbox.wait_empty()

    def attach(self, outbox: Outbox) -> None:
        """Send over this stream from now on."""
        self._outbox = outbox

    def detach(self) -> None:
        """There is no stream any more."""
        self._outbox = None

    def run_changed(self, status: nodes_pb2.RunStatus) -> None:
        """A run began to exist, or has ended."""
        if self._outbox is None:
            return
        if status.state == nodes_pb2.RUN_STATE_EXITED:
            self._outbox.put_end(status)
        else:
            self._outbox.open_run(status.run_id)
            self._outbox.put_news(("run", status.run_id), nodes_pb2.ConnectRequest(run=status))

    def progress_made(self, run_id: str) -> None:
        """A run's script reported, and the report is kept."""
        if self._outbox is not None:
            self._outbox.note_report(run_id)

    def output_grew(self) -> None:
        """Some run wrote output."""
        if self._outbox is not None:
            self._outbox.note_output()

    def delivery_changed(self, status: nodes_pb2.DeliveryStatus) -> None:
        """A delivery got further."""
        self._put_news("delivery", status.delivery_id, nodes_pb2.ConnectRequest(delivery=status))

    def serving_changed(self, status: nodes_pb2.ServingStatus) -> None:
        """The inference server came, went, or serves something else."""
        self._put_news("serving", "", nodes_pb2.ConnectRequest(serving=status))

    def _put_news(self, kind: str, name: str, message: nodes_pb2.ConnectRequest) -> None:
        if self._outbox is not None:
            self._outbox.put_news((kind, name), message)
