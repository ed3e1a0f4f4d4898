"""What goes to the broker over one stream. Facts are kept elsewhere; what is in here may be lost with the stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from tiercel.trainer_agent.run_log import RunLog
from tiercel.v1 import nodes_pb2

_QUEUED_MESSAGES: Final = 4096
_QUEUED_CHUNKS: Final = 16
_CHUNK_BYTES: Final = 64 * 1024
_GATHER_SECONDS: Final = 0.05

Logs = Callable[[], Iterable[tuple[str, RunLog]]]


class OutboxFullError(Exception):
    """The broker does not read; the stream has to be given up. All facts are sent again over the next one."""


class Outbox:
    """The queue of one stream, with the output of runs as its background traffic.

    Args:
        logs: The output of each run.
    """

    def __init__(self, logs: Logs) -> None:
        self._queue: asyncio.Queue[nodes_pb2.ConnectRequest] = asyncio.Queue(_QUEUED_MESSAGES)
        self._logs = logs
        self._room_for_output = asyncio.Semaphore(_QUEUED_CHUNKS)
        self._full = asyncio.Event()
        self._sent_bytes: dict[str, int] = {}
        self._exits: dict[str, nodes_pb2.RunStatus] = {}
        self._output_grew = asyncio.Event()

    def put_nowait(self, message: nodes_pb2.ConnectRequest) -> None:
        """Queue a message; if there is no room the stream ends."""
        try:
            self._queue.put_nowait(message)
        except asyncio.QueueFull:
            self._full.set()

    async def get(self) -> nodes_pb2.ConnectRequest:
        """The next message."""
        message = await self._queue.get()
        if message.WhichOneof("message") == "log":
            self._room_for_output.release()
        return message

    async def wait_empty(self) -> None:
        """Wait until everything was taken out."""
        while self._exits or not self._queue.empty():
            self._output_grew.set()
            await asyncio.sleep(_GATHER_SECONDS)

    async def wait_full(self) -> None:
        """Wait until a message found no room.

        Raises:
            OutboxFullError: Then.
        """
        await self._full.wait()
        raise OutboxFullError("The broker does not take what this node reports.")

    def put_exit(self, status: nodes_pb2.RunStatus) -> None:
        """Queue the end of a run, after what is left of its output."""
        self._exits[status.run_id] = status
        self._output_grew.set()

    def know_output(self, run_id: str, sent_bytes: int) -> None:
        """Begin to send a run's output; said again it changes nothing.

        Args:
            run_id: The run.
            sent_bytes: How much of it the broker has.
        """
        if run_id not in self._sent_bytes:
            self._sent_bytes[run_id] = sent_bytes
            self._output_grew.set()

    def note_output(self) -> None:
        """Some run wrote output."""
        self._output_grew.set()

    async def ship_output(self) -> None:
        """Send the output of runs as it grows, for ever, and never in the way of anything else."""
        while True:
            await self._output_grew.wait()
            self._output_grew.clear()
            exits = list(self._exits)
            for run_id, log in self._logs():
                await self._ship(run_id, log)
            for run_id in exits:
                self.put_nowait(nodes_pb2.ConnectRequest(run=self._exits.pop(run_id)))
            await asyncio.sleep(_GATHER_SECONDS)

    async def _ship(self, run_id: str, log: RunLog) -> None:
        if run_id not in self._sent_bytes:
            return
        size = log.size  # what comes meanwhile is for the next time: others have output, too
        while self._sent_bytes[run_id] < size:
            await self._room_for_output.acquire()
            begin, data = log.read(self._sent_bytes[run_id], _CHUNK_BYTES)
            chunk = nodes_pb2.LogChunk(run_id=run_id, offset_bytes=begin, data=data)
            self.put_nowait(nodes_pb2.ConnectRequest(log=chunk))
            self._sent_bytes[run_id] = begin + len(data)
            if not data:  # it was let go of
                return


class Reporter:
    """Carries news to the broker while there is a stream; without one nothing is lost, see the hello."""

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
            self._outbox.put_exit(status)
        else:
            self._outbox.put_nowait(nodes_pb2.ConnectRequest(run=status))

    def progress_made(self, progress: nodes_pb2.Progress) -> None:
        """A run's script reported."""
        self._send(nodes_pb2.ConnectRequest(progress=progress))

    def output_grew(self) -> None:
        """Some run wrote output."""
        if self._outbox is not None:
            self._outbox.note_output()

    def delivery_changed(self, status: nodes_pb2.DeliveryStatus) -> None:
        """A delivery got further."""
        self._send(nodes_pb2.ConnectRequest(delivery=status))

    def serving_changed(self, status: nodes_pb2.ServingStatus) -> None:
        """The inference server came, went, or serves something else."""
        self._send(nodes_pb2.ConnectRequest(serving=status))

    def _send(self, message: nodes_pb2.ConnectRequest) -> None:
        if self._outbox is not None:
            self._outbox.put_nowait(message)
