"""Inference without a transport: check a request against its model, run it, answer. REST and gRPC translate to this."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tiercel import __version__
from tiercel.core.errors import CapacityExceededError, InvalidRequestError, TiercelError
from tiercel.core.figures import compared
from tiercel.serving.accounting.accounts import ModelShare
from tiercel.serving.accounting.loop_lag import LoopLag
from tiercel.serving.dispatch.call import Call, Outcome, RequestCall
from tiercel.serving.dispatch.checks import checked
from tiercel.serving.dispatch.classification import as_classes
from tiercel.serving.dispatch.dispatcher import Dispatcher
from tiercel.serving.explaining.recent_requests import RecentRequests, Trace
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.models.registry import Registry
from tiercel.serving.requests import Answered, Checked, InferRequest, InferResult, OutputTensor, Template
from tiercel.serving.runtime.decoder import INPUT_IDS, TEXT_INPUT
from tiercel.serving.tensors import Array, described

if TYPE_CHECKING:
    from tiercel.serving.dispatch.variants.endpoints import Endpoints
    from tiercel.serving.runtime.engine import Session

# Templates that a version remembers to have checked.
_REMEMBERED = 1024
_REFUSAL = CapacityExceededError(
    "more requests are waiting already than can be answered in time; try again in a moment or allow more time"
)


# In Triton's words.
EXTENSIONS = (
    "binary_tensor_data", "classification", "generate", "model_configuration", "model_repository",
    "model_repository(unload_dependents)", "parameters", "schedule_policy", "statistics",
)  # fmt: skip


class DataPlane:
    """Answers requests with what is live.

    Args:
        timeout: Seconds in which a request is answered at the latest.
        endpoints: Names that stand for several variants, if there are any.
        recent: Remembers what became of requests with an id; None where nobody does.

    Attributes:
        loop_lag: How late the event loop comes; whoever runs the loop has it watched.
    """

    def __init__(
        self,
        registry: Registry,
        dispatcher: Dispatcher,
        timeout: float,
        endpoints: Endpoints | None = None,
        recent: RecentRequests | None = None,
    ) -> None:
        self._recent = recent
        self._registry = registry
        self._endpoints = endpoints
        self._dispatcher = dispatcher
        self._timeout = timeout
        self._began = time.perf_counter()
        self.loop_lag = LoopLag(self._began)

    def submit(self, request: InferRequest, on_answer: Answered) -> Call | None:
        """Answer a request now or later; called on the event loop.

        Args:
            request: What is wanted.
            on_answer: Called once, on the event loop, possibly before this returns. Those of one batch are called one
                after the other in one turn of the loop.

        Returns:
            What to cancel when the caller goes away, or None when it was answered already.
        """
        choose = self._chooser(request)
        if choose is not None:
            return choose(request, on_answer, self._trace_of(request.id))
        try:
            loaded = self._registry.live(request.model, request.version)
            if request.minimum_accuracy is not None:
                loaded = _accurate_enough(request, loaded, self._registry)
            session = loaded.session
            if loaded.account.waiting and request.priority != 1:  # those of priority 1 are not behind all that wait
                self._check_wait(loaded, request.timeout)
            feeds, known = checked(request, session)
        except TiercelError as error:
            on_answer(error)
            return None
        if request.classes:
            on_answer = as_classes(on_answer, request.classes, loaded)
        if request.template is not None:
            if len(loaded.checked) >= _REMEMBERED:
                loaded.checked.clear()
            loaded.checked[request.template] = known
        begin = time.perf_counter()
        call = RequestCall(
            loaded, session, feeds, known.outputs, known.key, session.batch_rows, known.rows, known.elements,
            known.size, begin, begin + self._allowed(session, request.timeout), request.priority,
        )  # fmt: skip
        call.on_answer = partial(_answer_in_full, on_answer, loaded, known.outputs)
        if request.id:
            call.trace = self._trace_of(request.id)
        return self._submitted(call, request.arrived or begin)

    def _chooser(self, request: InferRequest) -> Callable[[InferRequest, Answered, Trace | None], Call | None] | None:
        """Who has a scheduler choose what answers; None where it is the version that the model has."""
        if self._endpoints is None:
            return None
        record = self._registry.known(request.model)
        live = record.live if record is not None else None
        if record is None or live is None:
            return self._endpoints.submit if self._endpoints.knows(request.model) else None
        # A version that is named answers itself. There is no choice beside other priorities, nor during a trial, which
        # is of the versions themselves.
        if not live.cheap or record.trial is not None or request.version or request.priority not in (0, 2):
            return None
        return self._endpoints.submit_to_model

    def has(self, model: str) -> bool:
        """Whether something answers for a model here, so that nobody else is to be asked."""
        record = self._registry.known(model)
        if record is not None and record.live is not None:
            return True
        return self._endpoints is not None and self._endpoints.answers(model)

    def wait(self, model: str) -> float:
        """Seconds that one more request is expected to wait for its turn here; 0 where none waits."""
        record = self._registry.known(model)
        if record is None:
            return 0.0
        account = record.account
        waiting = account.waiting.rows + len(account.endpoint)
        return account.drain.wait(waiting + account.running + 1) if waiting else 0.0

    def known(self, model: str, version: str, template: Template) -> tuple[LoadedVersion, Checked] | None:
        """The version that answers and what it knows of a template; None where :meth:`submit` has to be asked.

        That is what no request of this template was asked before, and what may be answered by one of several versions,
        or by a cheap variant.
        """
        record = self._registry.known(model)
        if record is None or record.trial is not None:
            return None
        live = record.live
        if live is None or live.cheap or (version and version != live.version_text):
            return None
        known = live.checked.get(template)
        return None if known is None else (live, known)

    def refusal(self, loaded: LoadedVersion, template: Template) -> CapacityExceededError | None:
        """Why a request of this template would be refused, before anything is spent on its contents; None if it is not.

        For recognised requests in place of :meth:`check_room`. It is counted as refused.
        """
        account = loaded.account
        waiting = bool(account.waiting)
        if not waiting and loaded.session.inline_elements >= 0:
            return None
        allowed = self._allowed(loaded.session, template.timeout)
        in_vain = waiting and template.priority != 1 and account.would_wait_in_vain(allowed)
        if self._dispatcher.has_room(account) and not in_vain:
            return None
        _count_refusal(loaded, _REFUSAL)
        return _REFUSAL

    def apply(
        self,
        found: tuple[LoadedVersion, Checked],
        template: Template,
        feeds: Mapping[str, Array],
        arrived: float,
        on_answer: Callable[[Outcome], None],
        limit: float | None = None,
        request_id: str = "",
    ) -> Call | None:
        """As :meth:`submit`, for a request that was recognised: what it shares with others is not checked again.

        Args:
            found: As :meth:`known` said just now.
            template: What was recognised.
            feeds: Inputs by name, of the template's types and shapes.
            arrived: See :class:`InferRequest`.
            on_answer: Called once, like that of :meth:`submit`, with the outputs in the order of ``Checked.outputs``.
            limit: Seconds in which the answer is of use, whatever the template says; None for no such limit.
            request_id: See :class:`InferRequest`.
        """
        loaded, known = found
        begin = time.perf_counter()
        session = loaded.session
        allowed = self._allowed(session, template.timeout)
        if limit is not None and limit < allowed:
            allowed = limit
        call = RequestCall(
            loaded, session, feeds, known.outputs, known.key, session.batch_rows, known.rows, known.elements,
            known.size, begin, begin + allowed, template.priority,
        )  # fmt: skip
        call.on_answer = on_answer
        if request_id:
            call.trace = self._trace_of(request_id)
        return self._submitted(call, arrived or begin)

    def _trace_of(self, request_id: str) -> Trace | None:
        recent = self._recent
        return Trace(recent, request_id) if recent is not None and recent.wants(request_id) else None

    def _submitted(self, call: RequestCall, arrived: float) -> Call | None:
        call.loaded.account.requests += 1
        call.arrived = arrived
        try:
            self._dispatcher.submit(call)
        except TiercelError as error:
            call.ended = True
            call.fail(error, call.begin)
            return None
        return call

    def _allowed(self, session: Session, timeout: float | None) -> float:
        """Seconds in which an answer is of use."""
        if timeout is None:
            timeout = session.settings.default_timeout
        return self._timeout if timeout is None else min(self._timeout, timeout)

    def _check_wait(self, loaded: LoadedVersion, timeout: float | None) -> None:
        """Refuse what would be refused in the queue, before anything is spent on checking and describing it."""
        try:
            loaded.account.check_wait(self._allowed(loaded.session, timeout))
        except CapacityExceededError as error:
            _count_refusal(loaded, error)
            raise

    def check_room(self, model: str) -> None:
        """Refuse early what would be refused later, before anything is spent on reading it.

        Raises:
            CapacityExceededError: So much waits for this model already that another request would be refused.
            TiercelError: Nothing answers for it; what :meth:`.Registry.live` raises.
        """
        record = self._registry.known(model)
        if record is None or record.live is None:
            if self._endpoints is None or not self._endpoints.knows(model):
                self._registry.live(model)
            else:
                self._endpoints.check_room(model)
            return
        if record.live.session.inline_elements >= 0 and not record.account.waiting:
            return  # it hardly ever takes room, and what others wait for is not its fault
        try:
            self._dispatcher.check_room(record.account)
        except CapacityExceededError as error:
            _count_refusal(record.live, error)
            raise

    async def infer(self, request: InferRequest) -> InferResult:
        """Answer a request.

        Raises:
            TiercelError: It cannot be answered; see :mod:`tiercel.core.errors`.
        """
        answer: asyncio.Future[InferResult] = asyncio.get_running_loop().create_future()

        def on_answer(result: InferResult | TiercelError) -> None:
            if answer.cancelled():  # in this turn of the loop
                return
            if isinstance(result, TiercelError):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        call = self.submit(request, on_answer)
        try:
            return await answer
        except asyncio.CancelledError:  # the caller went away
            if call is not None:
                call.cancel()
            raise

    def usage(self, since: float = 0.0) -> dict[str, Any]:
        """What the requests of each model took since the server began, and what they may take.

        Args:
            since: Uptime in seconds: models that nobody asked anything from then on are left out; 0 for all models.
        """
        now, at = time.perf_counter(), self.clock_at(since)
        accounts = self._registry.accounts()
        return {
            "uptime_seconds": now - self._began,
            "loop_lag": self.loop_lag.as_json(now),
            "models": [account.as_json(now) for account in accounts if not since or account.changed_since(at)],
        }

    def clock_at(self, uptime: float) -> float:
        """The clock of requests when the server had been running for so many seconds; before all for 0."""
        return self._began + uptime if uptime else -math.inf

    def declare_shares(self, shares: dict[str, ModelShare]) -> None:
        """Models may use this much from now on; those not named are not limited."""
        self._registry.declare_shares(shares)
        self._dispatcher.look_again()

    def is_ready(self) -> bool:
        """Whether all models that were on disk at the start have been tried."""
        return self._registry.ready

    def is_model_ready(self, model: str, version: str = "") -> bool:
        """Whether this model, and version if one is named, answers."""
        try:
            self.model_metadata(model, version)
        except TiercelError:
            return False
        return True

    def server_metadata(self) -> dict[str, Any]:
        """Name, version and extensions of the server."""
        return {"name": "tiercel", "version": __version__, "extensions": list(EXTENSIONS)}

    def model_metadata(self, model: str, version: str = "") -> dict[str, Any]:
        """Inputs and outputs of a model; of one that generates, as which field it takes its prompt.

        Raises:
            NotFoundError: It is not loaded, or not in this version.
            UnavailableError: It is being loaded for the first time.
        """
        if self._endpoints is not None and self._endpoints.knows(model):
            return self._endpoints.metadata(model, version)
        found = self._registry.answering(model, version)
        live = found[0]
        told: dict[str, Any] = {
            "name": model,
            "versions": [each.version_text for each in found],
            "platform": "onnxruntime_onnx",
            "inputs": described(live.session.inputs),
            "outputs": described(live.session.outputs),
        }
        if live.cheap:
            variants = [{"name": kind.value, "accuracy": each.accuracy} for kind, each in live.by_kind.items()]
            told["parameters"] = {"variants": variants}
        if (decoder := live.session.decoder) is not None:
            told.setdefault("parameters", {})["prompt"] = INPUT_IDS if decoder.tokenizer is None else TEXT_INPUT
        return told


def _accurate_enough(request: InferRequest, chosen: LoadedVersion, registry: Registry) -> LoadedVersion:
    """The version that was chosen, if it is as accurate as wanted or nobody knows; else the other one of a trial."""
    minimum = request.minimum_accuracy or 0.0
    if chosen.accuracy is None or chosen.accuracy >= minimum:
        return chosen
    for other in registry.answering(request.model, request.version):
        if other.accuracy is None or other.accuracy >= minimum:
            return other
    asked, has = compared(minimum, chosen.accuracy)
    raise InvalidRequestError(
        f"minimum_accuracy is {asked}, but version {chosen.version_text} of '{request.model}' has {has}"
    )


def _answer_in_full(on_answer: Answered, loaded: LoadedVersion, names: tuple[str, ...], outcome: Outcome) -> None:
    if isinstance(outcome, TiercelError):
        on_answer(outcome)
        return
    tensors = [OutputTensor(loaded.outputs[name], array) for name, array in zip(names, outcome, strict=True)]
    on_answer(InferResult(loaded.model, loaded.version_text, tensors, loaded.parameters))


def _count_refusal(loaded: LoadedVersion, error: TiercelError) -> None:
    now = time.perf_counter()
    loaded.account.requests += 1
    loaded.account.delays.failed(now)
    loaded.statistics.failed(error, now)
