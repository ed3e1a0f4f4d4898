"""A request of an endpoint: a call whose version is known when it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.serving.dispatch.call import RequestCall
from tiercel.serving.dispatch.classification import as_classes
from tiercel.serving.requests import InferRequest, InferResult, OutputTensor, ParameterValue
from tiercel.serving.tensors import Array

if TYPE_CHECKING:
    from tiercel.serving.accounting.waiting import Source
    from tiercel.serving.dispatch.variants.live import Candidate


class VariantCall(RequestCall):
    """See the module. Until it runs, ``loaded`` is the most accurate version of the time when it came."""

    __slots__ = ("chosen", "expires", "minimum", "request", "since", "source", "useless_at")

    request: InferRequest  # what was asked
    source: Source
    since: float  # when it came, earlier by as much as it is due earlier than the objective says
    useless_at: float  # when an answer would be worth nothing any more; its deadline while it waits
    expires: float  # when it is to be answered at the latest; its deadline while it runs
    minimum: float  # the least accuracy that will do
    chosen: Candidate | None  # who answers, once that is decided

    @property
    def variant(self) -> str:
        """See :attr:`RequestCall.variant`."""
        return "" if self.chosen is None else self.chosen.name

    def choose(self, chosen: Candidate) -> None:
        """This variant answers it, now."""
        self.chosen = chosen
        self.loaded, self.session = chosen.loaded, chosen.loaded.session
        self.deadline = self.expires
        self.loaded.acquire()

    def let_go(self) -> None:
        """See :meth:`Call.let_go`."""
        if self.chosen is not None:
            self.loaded.release()

    def answer(self, outputs: list[Array], now: float) -> None:
        """See :meth:`Call.answer`."""
        chosen, loaded, request = self.chosen, self.loaded, self.request
        assert chosen is not None  # noqa: S101 - for the type checker; it ran
        self.account.answered_by[chosen.name] += 1
        tensors = [OutputTensor(loaded.outputs[name], array) for name, array in zip(self.outputs, outputs, strict=True)]
        told: dict[str, ParameterValue] = {
            "variant": chosen.name,
            "version": loaded.version_text,
            "accuracy": chosen.accuracy,
        }
        send = as_classes(self.on_answer, request.classes, loaded) if request.classes else self.on_answer
        self._send(send, InferResult(request.model, loaded.version_text, tensors, told), outputs)
