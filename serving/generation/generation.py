"""Generates answers token by token: finds the version, checks what is asked, and gives it to the version's loop."""

from __future__ import annotations

import secrets
import time
from asyncio import Future
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tiercel.core.errors import CapacityExceededError, DeadlineExceededError, InvalidRequestError, TiercelError
from tiercel.serving.accounting.delays import Delays
from tiercel.serving.generation.loop import DecodeLoop
from tiercel.serving.generation.noting import Notes
from tiercel.serving.generation.request import (
    GenerationLimits,
    GenerationRequest,
    checked_prompt,
    context_of,
    tokenized,
)
from tiercel.serving.generation.room import CacheRoom
from tiercel.serving.generation.row import Listener, Row
from tiercel.serving.generation.statistics import GenerationStatistics
from tiercel.serving.tensors import Array

if TYPE_CHECKING:
    from tiercel.serving.dispatch.dispatcher import Dispatcher
    from tiercel.serving.dispatch.variants.endpoints import Endpoints
    from tiercel.serving.explaining.recent_requests import RecentRequests
    from tiercel.serving.models.loaded_version import LoadedVersion
    from tiercel.serving.models.registry import Registry
    from tiercel.serving.runtime.decoder import Decoder


class Generation:
    """See the module; used on the event loop only.

    Args:
        registry: The models.
        dispatcher: Runs steps.
        endpoints: Names that stand for several variants, which are not chosen among here.
        limits: How much may be generated.
        recent: Remembers what became of answers to requests with ids; None for nothing.
    """

    def __init__(
        self,
        registry: Registry,
        dispatcher: Dispatcher,
        endpoints: Endpoints,
        limits: GenerationLimits,
        recent: RecentRequests | None = None,
    ) -> None:
        self._recent = recent
        self._registry = registry
        self._dispatcher = dispatcher
        self._endpoints = endpoints
        self.limits = limits
        self.room = CacheRoom(limits.cache_bytes)
        self._loops: dict[LoadedVersion, DecodeLoop] = {}
        self._statistics: dict[str, GenerationStatistics] = {}

    @property
    def statistics(self) -> Mapping[str, GenerationStatistics]:
        """What was generated, by model."""
        return self._statistics

    @property
    def rows(self) -> tuple[int, int]:
        """Rows that are being generated, and rows that wait for it."""
        loops = self._loops.values()
        return sum(loop.begun for loop in loops), sum(loop.waiting for loop in loops)

    def generates(self, model: str) -> bool:
        """Whether a model's live version is here, and a decoder with a key-value cache."""
        record = self._registry.known(model)
        return record is not None and record.live is not None and record.live.session.decoder is not None

    def version_for(self, model: str, version: str) -> tuple[LoadedVersion, Decoder]:
        """The version that answers, and how it is run.

        Raises:
            TiercelError: There is none, or it does not generate.
        """
        record = self._registry.known(model)
        if (record is None or record.live is None) and self._endpoints.knows(model):
            raise InvalidRequestError(
                f"'{model[:200]}' is answered by several variants, and an answer that is generated comes from one: "
                "have one job feed the endpoint"
            )
        loaded = self._registry.live(model, version)
        decoder = loaded.session.decoder
        if decoder is None:
            raise InvalidRequestError(
                f"version {loaded.version} of '{model[:200]}' is no decoder with a key-value cache (input_ids, "
                "past_key_values.N.key and .value in; logits, present.N.key and .value out): ask it at /infer, or "
                "export it with tiercel.trainer.generation.export_decoder"
            )
        return loaded, decoder

    def submit(
        self, request: GenerationRequest, found: tuple[LoadedVersion, Decoder], arrived: float, listener: Listener
    ) -> Row:
        """Generate an answer.

        Args:
            request: What is wanted.
            found: As :meth:`version_for` said just now.
            arrived: When it came, seconds of ``time.perf_counter``; 0 for now.
            listener: Hears of it, from the next turn of the event loop on.

        Returns:
            What to cancel when the caller goes away.

        Raises:
            TiercelError: It does not fit the model, or there is no room; of a text, the listener may hear that.
        """
        loaded, decoder = found
        ends = request.stop if decoder.end_token is None else request.stop | {decoder.end_token}
        seed = secrets.randbits(64) if request.seed is None else request.seed
        loop = self._loop_of(loaded, decoder)
        now = time.perf_counter()
        row = Row(loop, request.sampling, np.random.default_rng(seed), ends, arrived or now, listener)
        if self._recent is not None and self._recent.wants(request.id):
            row.notes = Notes(self._recent, loaded.model, loaded.version_text, request.id, row.arrived, now)
        if isinstance(request.prompt, str):
            row.tokenizing = tokenized(request, request.prompt, decoder, context_of(decoder, self.limits))
            row.tokenizing.add_done_callback(partial(self._tokenized, request, decoder, loop, row))
        else:
            row.ask(*self._checked(request, np.array(request.prompt, np.int64), decoder))
        try:
            loop.add(row, request.timeout)
        except CapacityExceededError:
            if row.tokenizing is not None:
                row.tokenizing.cancel()
            raise
        return row

    def _tokenized(
        self, request: GenerationRequest, decoder: Decoder, loop: DecodeLoop, row: Row, found: Future[Array]
    ) -> None:
        if found.cancelled():
            return
        try:
            row.ask(*self._checked(request, found.result(), decoder))
        except TiercelError as error:
            loop.fail(row, error)
        else:
            loop.look()

    def _checked(self, request: GenerationRequest, ids: Array, decoder: Decoder) -> tuple[Array, int]:
        """A prompt's ids as the model takes them, and how many tokens the answer has at most."""
        prompt = checked_prompt(request, ids, decoder, self.limits)
        fit = self.limits.cache_bytes // decoder.token_bytes
        return prompt, min(request.tokens, min(context_of(decoder, self.limits), fit + 1) - len(prompt))

    def close(self) -> None:
        """Fail whatever is not complete; nothing is asked any more."""
        for loop in tuple(self._loops.values()):
            loop.break_off(DeadlineExceededError("the server is leaving; ask the one that follows it"))
        for record in self._registry.records():
            for loaded in record.answering:
                if (decoder := loaded.session.decoder) is not None and decoder.tokenizer is not None:
                    decoder.tokenizer.end()

    def _loop_of(self, loaded: LoadedVersion, decoder: Decoder) -> DecodeLoop:
        found = self._loops.get(loaded)
        if found is None:
            statistics = self._statistics.get(loaded.model)
            if statistics is None:  # as many as there are models
                statistics = GenerationStatistics(Delays(time.perf_counter()))
                self._statistics[loaded.model] = statistics
            forget = partial(self._forget, loaded)
            found = DecodeLoop(loaded, decoder, self._dispatcher, self.limits, self.room, statistics, forget)
            self._loops[loaded] = found
        return found

    def _forget(self, loaded: LoadedVersion) -> None:
        self._loops.pop(loaded, None)
