"""gRPC calls for models that other nodes have: handed on to them, and answered for them."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping

from tiercel.core.errors import TiercelError
from tiercel.serving.access.callers import Caller, handed_on_for
from tiercel.serving.dataplane import DataPlane
from tiercel.serving.grpc.server.calls import Call, CallHead, InnerCall, Method
from tiercel.serving.grpc.server.wire import Status
from tiercel.serving.routing.calls import PATH, CallAnswer, Handed, read_answer
from tiercel.serving.routing.relay import ASKED_BY, Handing, Relay
from tiercel.serving.tasks import StartTask

_logger = logging.getLogger(__name__)

STREAMED = "ModelStreamInfer"
"""The method of which a stream's requests are handed on, each by itself."""
HANDED_ON = frozenset({"ModelInfer", "ModelReady", "ModelMetadata", STREAMED})
"""Methods whose calls may be for a model of another node."""
TRACE_CONTEXT = ("traceparent", "tracestate")
"""Metadata by which W3C Trace Context says which trace a call is part of."""
# It becomes a header's line, where a line's end would begin another one.
_TRACE_TEXT = re.compile(r"[!-~]([ -~]{0,510}[!-~])?")
Respond = Callable[[CallAnswer | None], None]
Otherwise = Callable[[], None]


class HandedCall(InnerCall):
    """A call that another server has handed on to this one.

    Args:
        head: What is called.
        caller: Who asked there.
        is_proven: Whether it is certain that another server of ours says so.
        allowed: Seconds in which the answer is of use; None for no limit.
        respond: Takes how it ended; None where it was not begun, for the model is not here.
    """

    __slots__ = ("_before", "_respond", "is_proven")

    def __init__(
        self, head: CallHead, caller: Caller, allowed: float | None, respond: Respond, *, is_proven: bool
    ) -> None:
        super().__init__(head, caller, time.perf_counter())
        self._respond = respond
        self._before: list[bytes] = []
        self._deadline = None if allowed is None else self.arrived + allowed
        self.is_proven = is_proven

    def remaining(self) -> float | None:
        """See :meth:`Call.remaining`."""
        return None if self._deadline is None else max(0.0, self._deadline - time.perf_counter())

    def begin(self, message: bytes) -> None:
        """Have it answered."""
        self._handle(message)

    def say_not_here(self) -> None:
        """The model is not here: the other server asks somebody else."""
        if not self.is_done:
            self._finish("the model is not here")
            self._respond(None)

    def send(self, message: bytes) -> None:
        """See :meth:`Call.send`; it goes to the other server with the last one."""
        if not self.is_done:
            self._before.append(message)

    def answer(self, message: bytes) -> None:
        """See :meth:`Call.answer`."""
        if not self.is_done:
            self._finish()
            self._respond(CallAnswer(body=message, before=tuple(self._before)))

    def finish(self, status: Status = Status.OK, message: str = "", details: bytes = b"") -> None:
        """See :meth:`Call.finish`."""
        if not self.is_done:
            self._finish("" if status is Status.OK else f"{status.name}: {message}")
            self._respond(CallAnswer(int(status), message, details, before=tuple(self._before)))


class GrpcHanding:
    """Hands calls on, and has those answered that were handed on to this server.

    Args:
        timeout: Seconds in which a call is answered at the latest.
    """

    def __init__(self, relay: Relay, plane: DataPlane, start_task: StartTask, timeout: float) -> None:
        self._relay = relay
        self._plane = plane
        self._start_task = start_task
        self._timeout = timeout

    @property
    def node_id(self) -> str:
        """Of this node; empty for unknown."""
        return self._relay.node_id

    def is_due(self, model: str, call: Call) -> bool:
        """Whether a call is not for this node: the model is not here, and another node has it or handed the call on."""
        return not self._plane.has(model) and (isinstance(call, HandedCall) or self._relay.answers(model))

    def is_sooner(self, model: str, call: Call) -> bool:
        """Whether another node is expected to answer before a call for a model that is here has its turn."""
        return not isinstance(call, HandedCall) and self._relay.is_sooner(model, self._plane.wait(model))

    def hand_on(self, method: str, model: str, message: bytes, call: Call, otherwise: Otherwise | None = None) -> None:
        """Have another node answer a call; of one that was handed on already, say that the model is not here.

        Args:
            method: What is called.
            model: What it is for.
            message: Its request.
            call: Takes the answer.
            otherwise: Answers it here where nobody else does; None where it cannot be answered here.
        """
        if isinstance(call, HandedCall):
            call.say_not_here()
            return
        headers = b"Content-Type: application/grpc\r\n"
        if asked_by := handed_on_for(call.caller):
            headers += b"%b: %b\r\n" % (ASKED_BY, asked_by.encode("latin-1"))
        if call.head.authorization:
            headers += b"Authorization: %b\r\n" % call.head.authorization
        headers += _trace_lines(call)
        handing = Handing(model, b"POST", (PATH + method).encode(), headers, message)
        handed = Handed()
        call.on_cancel = handed.cancel
        self._start_task(self._answer(handed, handing, call, otherwise), "hand on")

    async def _answer(self, handed: Handed, handing: Handing, call: Call, otherwise: Otherwise | None) -> None:
        if not handed.begin():
            return
        try:
            answer = await self._ask(handing, call, is_here=otherwise is not None)
            if otherwise is not None and _was_not_served(answer):
                if not call.is_done:
                    call.on_cancel = None  # there is nothing elsewhere to cancel any more
                    otherwise()
                return
        except Exception:  # the border: one call's defect must not end the task without a word to the caller
            _logger.exception("Handing a call on failed")
            call.finish(Status.INTERNAL, "the server failed; its log says more")
            return
        for message in answer.before:
            call.send(message)
        if answer.status == Status.OK:
            call.answer(answer.body)
        else:
            call.finish(Status(answer.status), answer.message, answer.details)

    async def _ask(self, handing: Handing, call: Call, *, is_here: bool) -> CallAnswer:
        """How the call ended elsewhere."""
        remaining = call.remaining()
        allowed = self._timeout if remaining is None else min(remaining, self._timeout)
        deadline = asyncio.get_running_loop().time() + allowed
        try:
            heard = await self._relay.ask(handing, deadline, is_here=is_here)
        except TiercelError as error:
            return CallAnswer(int(Status[error.grpc_status]), error.message)
        answer = read_answer(heard.headers, bytes(heard.body))
        if answer is None:
            text = f"the node that answers for '{handing.model[:200]}' did not answer the call (HTTP {heard.status})"
            return CallAnswer(int(Status.UNAVAILABLE), text)
        return answer


def _trace_lines(call: Call) -> bytes:
    """Header lines that say which trace a call is part of: of its own span, else what its caller said."""
    told = {name: call.head.metadata.get(name) for name in TRACE_CONTEXT}
    if call.span is not None:
        told["traceparent"] = call.span.traceparent
    return b"".join(
        f"{name}: {text}\r\n".encode("ascii")
        for name, text in told.items()
        if isinstance(text, str) and _TRACE_TEXT.fullmatch(text)
    )


def _was_not_served(answer: CallAnswer) -> bool:
    """Whether there was nobody, or no room, elsewhere; a key's rate comes with details of when to ask again."""
    return answer.status == Status.UNAVAILABLE or (answer.status == Status.RESOURCE_EXHAUSTED and not answer.details)


class HandedCalls:
    """Answers calls that other servers hand on.

    Args:
        methods: Those of :data:`HANDED_ON`, by name.
    """

    def __init__(self, methods: Mapping[str, Method]) -> None:
        self._methods = methods

    def answer(
        self,
        method: str,
        message: bytes,
        caller: Caller,
        authorization: bytes,
        allowed: float | None,
        respond: Respond,
        *,
        is_proven: bool,
        trace_context: Mapping[str, str],
    ) -> HandedCall | None:
        """Have a call answered.

        Args:
            method: Its name.
            message: Its request.
            caller: Who asked the other server.
            authorization: What was shown there.
            allowed: Seconds in which the answer is of use; None for no limit.
            respond: See :class:`HandedCall`.
            is_proven: See :class:`HandedCall`.
            trace_context: Of :data:`TRACE_CONTEXT` what was sent along.

        Returns:
            What to cancel when the other server does not wait any more; None for a method that is not handed on.
        """
        found = self._methods.get(method)
        if found is None:
            return None
        call = HandedCall(
            CallHead(found, None, False, dict(trace_context), authorization),
            caller,
            allowed,
            respond,
            is_proven=is_proven,
        )
        call.begin(message)
        return call
