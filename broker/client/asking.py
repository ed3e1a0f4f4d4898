"""The part of the client about asking endpoints."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Unpack

from tiercel.core.endpoint_access import KEY_VARIABLE
from tiercel.core.jsonable import Json

if TYPE_CHECKING:
    from tiercel.broker.client.generation import Generated, GeneratedPart, Sampling
    from tiercel.broker.client.inference import ArrayLike, InferenceClient, InferenceResult


class Asking(ABC):
    """What a client can ask endpoints."""

    @abstractmethod
    def _asking(self) -> InferenceClient:
        """Asks them."""

    async def infer(
        self,
        endpoint: str,
        inputs: Mapping[str, ArrayLike],
        minimum_accuracy: float | None = None,
        key: str | None = None,
        *,
        request_id: str = "",
    ) -> InferenceResult:
        """Ask an endpoint's live version, over HTTP by the Open Inference Protocol.

        Args:
            endpoint: Its name.
            inputs: A NumPy array or nested lists for each input, the batch dimension first.
            minimum_accuracy: Of an endpoint with variants: none below it answers. None for any.
            key: The endpoint's, for one that takes keys; None for what ``TIERCEL_KEY`` in the environment says.
            request_id: By which :meth:`explain_request` knows it; empty for none.

        Raises:
            NotFoundError: The tenant has no such endpoint.
            NotAuthenticatedError: It takes keys, and this is none of its own that is good.
            RateExceededError: The key asks more often than it is good for.
            InvalidSpecError: An input is missing, unknown, or of the wrong shape or type, or no variant is accurate
                enough.
            UnavailableError: No version answers yet.
        """
        return await self._asking().infer(endpoint, inputs, minimum_accuracy, _shown(key), request_id)

    async def generate(
        self,
        endpoint: str,
        prompt: str | Sequence[int],
        *,
        key: str | None = None,
        request_id: str = "",
        **sampling: Unpack[Sampling],
    ) -> Generated:
        """Have an endpoint's live version, a decoder with a key-value cache, generate an answer token by token.

        Args:
            endpoint: Its name.
            prompt: A text, where the version has a tokenizer, or ids.
            key: As for :meth:`infer`.
            request_id: Comes back in the server's answer; empty for none.
            sampling: ``max_tokens``, ``temperature`` and others, see :class:`.Sampling`.

        Raises:
            InvalidSpecError: The model does not generate, or not with this.
            TiercelError: As for :meth:`infer`.
        """
        return await self._asking().generate(endpoint, prompt, sampling, _shown(key), request_id)

    async def generate_stream(
        self,
        endpoint: str,
        prompt: str | Sequence[int],
        *,
        key: str | None = None,
        request_id: str = "",
        **sampling: Unpack[Sampling],
    ) -> AsyncGenerator[GeneratedPart]:
        """As :meth:`generate`, in parts as they come; the last one has a ``finish_reason``.

        Raises:
            UnavailableError: The answer cannot be completed; what came is of a broken one.
            TiercelError: As there, before the first part.
        """
        parts = self._asking().generate_stream(endpoint, prompt, sampling, _shown(key), request_id)
        async with aclosing(parts):
            async for part in parts:
                yield part

    async def explain_request(self, endpoint: str, request_id: str, key: str | None = None) -> Json:
        """See :meth:`.EndpointClient.explain_request`; ``key`` as in :meth:`infer`."""
        return await self._asking().explain(endpoint, request_id, _shown(key))

    async def feedback(self, endpoint: str, labels: Mapping[str, Any], key: str | None = None) -> Json:
        """See :meth:`.EndpointClient.feedback`; ``key`` as in :meth:`infer`."""
        return await self._asking().feedback(endpoint, labels, _shown(key))


def _shown(key: str | None) -> str:
    return os.environ.get(KEY_VARIABLE, "") if key is None else key
