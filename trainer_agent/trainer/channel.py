"""The connection to the node's agent: one daemon thread, opened again whenever it breaks.

The script's thread never waits for it, except where it says so: :meth:`AgentChannel.wait_request` and
:meth:`AgentChannel.close`.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc

from tiercel.trainer_agent.trainer.message_buffer import MessageBuffer, StreamCursor
from tiercel.v1 import PROTOCOL, trainer_pb2, trainer_pb2_grpc

logger = logging.getLogger(__name__)

SOCKET_FILE = "agent.sock"
TOKEN_FILE = "token"  # noqa: S105 - the file's name, not a token
# The kernel takes 107 bytes; a few are left for the notation of the address.
LONGEST_SOCKET_PATH = 100
FIRST_RETRY_SECONDS = 0.05
LONGEST_RETRY_SECONDS = 2.0
CLOSE_SECONDS = 2.0
LONGEST_ERROR = 4000
_CHANNEL_OPTIONS = [
    ("grpc.enable_http_proxy", 0),
    # gRPC would otherwise share its own, slower, back-off among all attempts.
    ("grpc.use_local_subchannel_pool", 1),
]


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The agent has every report."""


@dataclass(frozen=True, slots=True)
class Terminated:
    """The process was sent a signal to end."""


Request = (
    trainer_pb2.TrainerWelcome
    | trainer_pb2.ExportRequest
    | trainer_pb2.PaceRequest
    | trainer_pb2.StopRequest
    | Acknowledged
    | Terminated
)


class AgentChannel:
    """Brings reports to the agent and its requests to the script.

    Args:
        run_directory: Folder of the run, with the agent's socket and the run's token in it.
    """

    def __init__(self, run_directory: Path) -> None:
        self._token = (run_directory / TOKEN_FILE).read_text().strip()
        self._target, self._directory_fd = _target(run_directory)
        self._buffer = MessageBuffer()
        # Unbounded, unlike all others, because its put() is the only one that a signal handler may call. The agent
        # sends a few messages per report, and every report and every step empties the queue.
        self._requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._cursor = StreamCursor()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tiercel-agent", daemon=True)
        self._complained = False

    def start(self) -> None:
        """Begin to dial; returns at once."""
        self._thread.start()

    @property
    def is_connected(self) -> bool:
        """Whether the agent has welcomed the present stream and it has not broken since."""
        return self._cursor.welcomed and not self._cursor.over

    @property
    def all_acknowledged(self) -> bool:
        """Whether the agent has every report."""
        return not self._buffer.unacknowledged()

    def unacknowledged(self) -> tuple[trainer_pb2.TrainerReport, ...]:
        """Reports that the agent may not have, oldest first."""
        return self._buffer.unacknowledged()

    def send_report(self, report: trainer_pb2.TrainerReport, *, reached: bool) -> None:
        """Hand a report to the connection; it is sent again until it is acknowledged.

        Args:
            report: The report.
            reached: Whether it is the first to reach a tier, so that it must not give way to others.
        """
        self._buffer.add_report(report, reached=reached)

    def send_begun(self) -> None:
        """Say that the training begins; each new stream says it again."""
        self._buffer.set_begun()

    def send_use(self, use: trainer_pb2.AcceleratorUse) -> None:
        """Hand what was used to the connection; only the newest is sent, and each new stream begins with it."""
        self._buffer.set_use(use)

    def send_export_done(self, done: trainer_pb2.ExportDone) -> None:
        """Hand the answer to a request for a model to the connection; each new stream repeats it."""
        done.error = done.error[:LONGEST_ERROR]  # the agent ends a stream with a message that is too large
        self._buffer.add_export_done(done)

    def repeat_export_done(self, request: trainer_pb2.ExportRequest) -> bool:
        """Answer again what was answered before.

        Returns:
            False if it was not, or only that an earlier request's model falls short.
        """
        known = self._buffer.export_done(request.delivery_id)
        if known is None or (known.falls_short and known.request_number != request.request_number):
            return False
        self._buffer.repeat_export_done(request.delivery_id, self._cursor)
        return True

    def put_request(self, request: Request) -> None:
        """Add a request as if the agent had sent it. Safe in a signal handler."""
        self._requests.put(request)

    def next_request_nowait(self) -> Request | None:
        """The agent's next request, or None if there is none now."""
        try:
            return self._requests.get_nowait()
        except queue.Empty:
            return None

    def wait_request(self, timeout: float) -> Request | None:
        """The agent's next request, or None if none comes within ``timeout`` seconds."""
        try:
            return self._requests.get(timeout=max(timeout, 0.0))
        except queue.Empty:
            return None

    def close(self) -> None:
        """Send what is left, end the stream and wait for it, at most :data:`CLOSE_SECONDS`."""
        self._closing.set()
        self._buffer.close()
        self._thread.join(CLOSE_SECONDS)
        self._buffer.end(self._cursor)
        if self._directory_fd is not None and not self._thread.is_alive():
            os.close(self._directory_fd)
            self._directory_fd = None

    def _run(self) -> None:
        delay = FIRST_RETRY_SECONDS
        while not self._closing.is_set():
            self._cursor = StreamCursor()
            self._attach(self._cursor)
            delay = FIRST_RETRY_SECONDS if self._cursor.welcomed else min(2 * delay, LONGEST_RETRY_SECONDS)
            self._closing.wait(delay)

    def _attach(self, cursor: StreamCursor) -> None:
        """One stream, from dialling to its end. It has no deadline: it lasts as long as the run."""
        with grpc.insecure_channel(self._target, options=_CHANNEL_OPTIONS) as channel:
            responses = trainer_pb2_grpc.TrainerServiceStub(channel).Attach(self._send(cursor))
            try:
                for response in responses:
                    self._receive(response, cursor)
            except grpc.RpcError as error:
                self._complain_once(error)
            finally:
                self._buffer.end(cursor)

    def _send(self, cursor: StreamCursor) -> Iterator[trainer_pb2.AttachRequest]:
        yield trainer_pb2.AttachRequest(hello=trainer_pb2.TrainerHello(token=self._token, protocol=PROTOCOL))
        yield from self._buffer.messages(cursor)

    def _receive(self, response: trainer_pb2.AttachResponse, cursor: StreamCursor) -> None:
        match response.WhichOneof("message"):
            case "welcome":
                self._complained = False
                self._buffer.welcome(cursor)
                self._requests.put(response.welcome)
            case "report_ack":
                if self._buffer.acknowledge(response.report_ack.sequence):
                    self._requests.put(Acknowledged())
            case "export":
                self._requests.put(response.export)
            case "pace":
                self._requests.put(response.pace)
            case "stop":
                self._requests.put(response.stop)
            case None:
                logger.debug("the agent sent a message that this version of the library does not know")

    def _complain_once(self, error: grpc.RpcError) -> None:
        """Say that the connection broke, once until it is back."""
        if self._complained or self._closing.is_set():
            return
        self._complained = True
        code = error.code().name
        logger.warning(
            "no connection to the node's agent (%s); training goes on, reports are kept and sent later", code
        )


def _target(run_directory: Path) -> tuple[str, int | None]:
    """Address of the agent's socket, and the descriptor that has to stay open while it is used, if any."""
    path = run_directory.absolute() / SOCKET_FILE
    if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH:
        return f"unix:{urllib.parse.quote(str(path))}", None
    directory_fd = os.open(run_directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    return f"unix:/proc/self/fd/{directory_fd}/{SOCKET_FILE}", directory_fd
