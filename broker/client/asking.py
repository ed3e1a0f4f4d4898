"""The part of the clients about asking endpoints."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Unpack

from tiercel.core.endpoint_access import KEY_VARIABLE
from tiercel.core.errors import wrong_field
from tiercel.core.jsonable import Json

if TYPE_CHECKING:
    from tiercel.broker.client.generation import Generated, GeneratedPart, Sampling
    from tiercel.broker.client.inference import ArrayLike, InferenceClient, InferenceResult


class Asking(ABC):
    """What a client can ask endpoints, with a key where one takes keys.

    Each call's ``key`` is the endpoint's; None for the client's own, and where it has none, for what ``TIERCEL_KEY`` in
    the environment says.
    """

    _own_key: str | None = None

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
            key: The endpoint's, for one that takes keys.
            request_id: By which :meth:`explain_request` knows it; empty for none.

        Raises:
            NotFoundError: There is no such endpoint for who asks.
            NotAuthenticatedError: It takes keys, and this is none of its own that is good.
            RateExceededError: The key asks more often than it is good for.
            InvalidSpecError: An input is missing, unknown, or of the wrong shape or type, or no variant is accurate
                enough.
            UnavailableError: No version answers yet, nobody answers, or somebody who is not to be believed.
        """
        return await self._asking().infer(endpoint, inputs, minimum_accuracy, self._shown(key), request_id)

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
        return await self._asking().generate(endpoint, prompt, sampling, self._shown(key), request_id)

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
        parts = self._asking().generate_stream(endpoint, prompt, sampling, self._shown(key), request_id)
        async with aclosing(parts):
            async for part in parts:
                yield part

    async def explain_request(self, endpoint: str, request_id: str, key: str | None = None) -> Json:
        """Which node, version and batch answered a request, and how long each step took; see docs/serving.md.

        Args:
            endpoint: Its name.
            request_id: That of the request.
            key: As for :meth:`infer`.

        Raises:
            NotFoundError: Nobody knows the request, or knows it any more.
            NotAuthenticatedError: The endpoint takes keys, and this is none of its own that is good.
            UnavailableError: Nobody answers.
        """
        return await self._asking().explain(endpoint, request_id, self._shown(key))

    async def feedback(
        self,
        endpoint: str,
        labels: Mapping[str, Any] | ArrayLike,
        key: str | None = None,
        *,
        inputs: Mapping[str, ArrayLike] | None = None,
    ) -> Json:
        """Say what was right, so that the accuracy of the versions that answer is measured; see docs/serving.md.

        Args:
            endpoint: Its name.
            labels: By the id of a request, 1,000 at most: a number or text for each of its rows, or for its only row.
                With ``inputs`` no ids: one for each of their rows, 1,000 at most.
            key: As for :meth:`infer`.
            inputs: For each input of the model, as for :meth:`infer`: the live version answers them, and that counts.

        Returns:
            ``taken``, how many count now; ``refused``, why others do not; ``unknown``, ids that no node knows any more.
            Inputs are one, and refused as ``item`` 0.

        Raises:
            NotFoundError: No node knows any of the requests, or knows them any more, or the endpoint.
            InvalidSpecError: An input is missing or unknown, or labels are not of that form.
            NotAuthenticatedError: The endpoint takes keys, and this is none of its own that is good.
            UnavailableError: Nobody answers.
        """
        return await self._asking().feedback(endpoint, labels, inputs, self._shown(key))

    def _shown(self, key: str | None) -> str:
        chosen = self._own_key if key is None else key
        shown = os.environ.get(KEY_VARIABLE, "") if chosen is None else chosen
        if not (shown.isascii() and shown.isprintable()):
            raise wrong_field("key", "is none: it has characters that no key has; give it as 'tiercel key create' said")
        return shown
