"""What has to reach the agent, kept until it is known to have arrived; shared by the script's thread and gRPC's."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator

from tiercel.v1 import trainer_pb2

logger = logging.getLogger(__name__)

# Reports kept while the agent is away, or takes them more slowly than they are made; at its 200 a second it has all of
# them within 5 s.
REPORT_LIMIT = 1000
# Answers to requests for a model; a job has a handful of tiers.
EXPORT_LIMIT = 100


class StreamCursor:
    """How far one stream has got through the buffer. A new stream begins anew."""

    def __init__(self) -> None:
        self.last_report = 0
        self.exports_sent: dict[str, trainer_pb2.ExportDone] = {}
        self.use_sent: trainer_pb2.AcceleratorUse | None = None
        self.begun_sent = False
        self.welcomed = False
        self.over = False


class MessageBuffer:
    """Reports until they are acknowledged, and what a new stream repeats: answers to requests for a model, last use.

    When the agent stays away for so long that the buffer is full, the oldest reports are dropped: the newest say where
    the training is. Those that reached a tier stay: there are no more of them than tiers.
    """

    def __init__(self, *, report_limit: int = REPORT_LIMIT) -> None:
        self._changed = threading.Condition()
        self._reports: OrderedDict[int, trainer_pb2.TrainerReport] = OrderedDict()
        self._exports: OrderedDict[str, trainer_pb2.ExportDone] = OrderedDict()
        self._use: trainer_pb2.AcceleratorUse | None = None
        self._begun = False
        self._reached: set[int] = set()
        self._report_limit = report_limit
        self._complained = False
        self._closed = False

    def add_report(self, report: trainer_pb2.TrainerReport, *, reached: bool = False) -> None:
        """Send a report, on every stream until it is acknowledged; ``reached``: it is the first to reach a tier."""
        with self._changed:
            self._reports[report.sequence] = report
            if reached:
                self._reached.add(report.sequence)
            if len(self._reports) - len(self._reached) > self._report_limit:
                del self._reports[next(number for number in self._reports if number not in self._reached)]
                self._complain_once()
            self._changed.notify_all()

    def _complain_once(self) -> None:
        if not self._complained:
            self._complained = True
            logger.warning("more than %d reports wait for the agent: older ones are dropped", self._report_limit)

    def set_begun(self) -> None:
        """Say that the training begins, once on every stream."""
        with self._changed:
            self._begun = True
            self._changed.notify_all()

    def set_use(self, use: trainer_pb2.AcceleratorUse) -> None:
        """Send what was used of accelerators, in place of what was to be sent of it before."""
        with self._changed:
            self._use = use
            self._changed.notify_all()

    def add_export_done(self, done: trainer_pb2.ExportDone) -> None:
        """Send the answer to a request for a model, once on every stream, in place of an earlier one."""
        with self._changed:
            self._exports[done.delivery_id] = done
            if len(self._exports) > EXPORT_LIMIT:
                self._exports.popitem(last=False)
            self._changed.notify_all()

    def export_done(self, delivery_id: str) -> trainer_pb2.ExportDone | None:
        """The answer that was given for this delivery, or None."""
        with self._changed:
            return self._exports.get(delivery_id)

    def repeat_export_done(self, delivery_id: str, cursor: StreamCursor) -> None:
        """Send the answer again on a stream that has had it."""
        with self._changed:
            cursor.exports_sent.pop(delivery_id, None)
            self._changed.notify_all()

    def acknowledge(self, sequence: int) -> bool:
        """The agent has this report, and all before it, since a stream keeps their order.

        Returns:
            Whether none is left.
        """
        with self._changed:
            for number in [number for number in self._reports if number <= sequence]:
                del self._reports[number]
                self._reached.discard(number)
            if not self._reports:
                self._complained = False
            return not self._reports

    def unacknowledged(self) -> tuple[trainer_pb2.TrainerReport, ...]:
        """Reports that the agent may not have, oldest first."""
        with self._changed:
            return tuple(self._reports.values())

    def close(self) -> None:
        """Nothing comes any more: streams end once they have sent what is there."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def welcome(self, cursor: StreamCursor) -> None:
        """The agent has taken the stream's hello, so that messages may follow."""
        with self._changed:
            cursor.welcomed = True
            self._changed.notify_all()

    def end(self, cursor: StreamCursor) -> None:
        """The stream is broken; whoever waits for its messages is let go."""
        with self._changed:
            cursor.over = True
            self._changed.notify_all()

    def messages(self, cursor: StreamCursor) -> Iterator[trainer_pb2.AttachRequest]:
        """Wait for what a stream has to send, until it breaks or the buffer is closed and empty."""
        while (message := self._wait_message(cursor)) is not None:
            yield message

    def _wait_message(self, cursor: StreamCursor) -> trainer_pb2.AttachRequest | None:
        with self._changed:
            while not cursor.over:
                message = self._next_nowait(cursor) if cursor.welcomed else None
                if message is not None:
                    return message
                if self._closed:
                    return None
                self._changed.wait()  # without a timeout: end() and close() always notify
        return None

    def _next_nowait(self, cursor: StreamCursor) -> trainer_pb2.AttachRequest | None:
        if self._begun and not cursor.begun_sent:
            cursor.begun_sent = True
            return trainer_pb2.AttachRequest(begun=trainer_pb2.TrainerBegun())
        if self._use is not cursor.use_sent:
            cursor.use_sent = self._use
            return trainer_pb2.AttachRequest(use=self._use)
        for number, report in self._reports.items():
            if number > cursor.last_report:
                cursor.last_report = number
                return trainer_pb2.AttachRequest(report=report)
        for delivery_id, done in self._exports.items():
            if cursor.exports_sent.get(delivery_id) is not done:
                cursor.exports_sent[delivery_id] = done
                return trainer_pb2.AttachRequest(export_done=done)
        return None
