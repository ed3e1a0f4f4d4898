"""Asks endpoints for a browser, by the inference server on the broker's machine, which hands on what others answer."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp

from tiercel.broker.api.auth import caller_by_metadata, tenant_of
from tiercel.broker.api.gate import Places
from tiercel.broker.dashboard.asked import body_of
from tiercel.broker.dashboard.routes import Route
from tiercel.core.endpoint_access import EndpointAccess
from tiercel.core.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    NotAllowedError,
    NotFoundError,
    RateExceededError,
    TiercelError,
    TooLargeError,
    UnavailableError,
)
from tiercel.core.roles import Role
from tiercel.v1 import addresses_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tiercel.broker.actors.registry import ActorRegistry
    from tiercel.broker.actors.service import BrokerService
    from tiercel.broker.api.auth import Context
    from tiercel.broker.dashboard.asked import Asked
    from tiercel.broker.tenancy import Tenancy
    from tiercel.core.endpoints import Endpoint

MOST_QUESTION_BYTES = 4 * 1024 * 1024
MOST_ANSWER_BYTES = 4 * 1024 * 1024
ANSWER_SECONDS = 20.0
# Longer than inference servers give an answer that is generated, unless they are told otherwise.
GENERATION_SECONDS = 130.0
MOST_QUESTIONS, MOST_QUESTIONS_OF_A_TENANT = 16, 4
KEY_HEADER = "X-Tiercel-Key"
_REFUSALS: dict[int, type[TiercelError]] = {
    401: NotAllowedError,  # the key is wrong, not who is signed in
    404: NotFoundError,
    413: TooLargeError,
    429: RateExceededError,
    504: DeadlineExceededError,
}


@dataclass(frozen=True, slots=True)
class Spoken:
    """What an inference server answered."""

    content: bytes  # JSON
    milliseconds: float  # how long that took


class Asking:
    """Asks the endpoints of tenants.

    Args:
        service: Knows whose they are.
        registry: Knows where inference servers are.
        tenancy: Who asks.
    """

    def __init__(self, service: BrokerService, registry: ActorRegistry, tenancy: Tenancy) -> None:
        self._service = service
        self._registry = registry
        self._tenancy = tenancy
        self._places = Places("a tenant", MOST_QUESTIONS_OF_A_TENANT, MOST_QUESTIONS)
        self._session = aiohttp.ClientSession()

    async def close(self) -> None:
        """End the connections."""
        await self._session.close()

    def routes(self) -> tuple[Route, ...]:
        """What is asked of endpoints: by who may know where they answer."""

        def request(_: Asked) -> addresses_pb2.ListRoutesRequest:
            return addresses_pb2.ListRoutesRequest()

        rule, path = "AddressesService/ListRoutes", "endpoints/{endpoint}"
        return (
            Route("GET", f"{path}/metadata", rule, request, read=self._metadata),
            Route("GET", f"{path}/canary", rule, request, read=self._canary),
            Route("POST", f"{path}/infer", rule, request, read=self._infer, most_bytes=MOST_QUESTION_BYTES),
            Route("POST", f"{path}/generate", rule, request, follow=self._generate),
        )

    async def _metadata(self, asked: Asked, context: Context) -> Spoken:
        """Names, types and shapes of what an endpoint takes and gives."""
        return await self._ask("GET", "", asked, context)

    async def _canary(self, asked: Asked, context: Context) -> Spoken:
        """How the trial of an endpoint's version goes, or the last one went; `null` where none is known here."""
        self._service.endpoints.find(tenant_of(context, self._tenancy).name, asked.part("endpoint"))
        try:
            return await self._ask("GET", "/canary", asked, context)
        except (NotFoundError, UnavailableError):  # other machines have its versions, or nothing answers yet
            return Spoken(b'{"canary": null}', 0.0)

    async def _infer(self, asked: Asked, context: Context) -> Spoken:
        """Asks an endpoint: a request of the Open Inference Protocol as JSON."""
        return await self._ask("POST", "/infer", asked, context)

    async def _generate(self, asked: Asked, context: Context) -> AsyncGenerator[bytes]:
        """Has an endpoint generate: an event for each token as it comes, as docs/generation.md has it."""
        async with self._answering("POST", "/generate_stream", asked, context, GENERATION_SECONDS) as answer:
            left = MOST_ANSWER_BYTES
            async for piece in answer.content.iter_any():
                left -= len(piece)
                if left < 0:
                    raise TooLargeError(f"the answer is more than {MOST_ANSWER_BYTES} bytes; ask for less")
                yield piece

    async def _ask(self, verb: str, path: str, asked: Asked, context: Context) -> Spoken:
        began = time.perf_counter()
        async with self._answering(verb, path, asked, context, ANSWER_SECONDS) as answer:
            content = await body_of(answer.content, MOST_ANSWER_BYTES)
        return Spoken(content, (time.perf_counter() - began) * 1000)

    @contextlib.asynccontextmanager
    async def _answering(
        self, verb: str, path: str, asked: Asked, context: Context, seconds: float
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """What an inference server answers, if it is no refusal."""
        tenant = tenant_of(context, self._tenancy).name
        endpoint = self._service.endpoints.find(tenant, asked.part("endpoint"))
        self._check_may_ask(endpoint, context)
        url = f"http://{self._inference_server(endpoint.node_id)}/v2/models/{endpoint.name}{path}"
        headers = {"Content-Type": "application/json"}
        if key := asked.header(KEY_HEADER):
            headers["Authorization"] = f"Bearer {key}"
        data = io.BytesIO(asked.body) if asked.body else None
        limit = aiohttp.ClientTimeout(total=seconds)
        try:
            with self._places.taken(tenant):
                async with self._session.request(
                    verb, url, data=data, headers=headers, allow_redirects=False, timeout=limit
                ) as answer:
                    if answer.status != 200:
                        refusal = InvalidRequestError if answer.status < 500 else UnavailableError
                        said = _why(await body_of(answer.content, MOST_ANSWER_BYTES))
                        raise _REFUSALS.get(answer.status, refusal)(said)
                    yield answer
        except TimeoutError:
            raise DeadlineExceededError(f"the model did not answer within {seconds:g} s; ask for less") from None
        except (aiohttp.ClientError, asyncio.IncompleteReadError) as error:
            raise UnavailableError(
                f"the inference server does not answer ({type(error).__name__}); try again"
            ) from None

    def _check_may_ask(self, endpoint: Endpoint, context: Context) -> None:
        """A viewer gets no certificate of its tenant's, by which it could ask elsewhere; so it may not ask here."""
        role = caller_by_metadata(context.invocation_metadata(), self._tenancy).role
        if role is Role.VIEWER and endpoint.access is EndpointAccess.TENANT:
            raise NotAllowedError(
                f"a viewer asks what is public, or with a key; endpoint {endpoint.name} is for its tenant's submitters"
            )

    def _inference_server(self, home: str) -> str:
        """Where the one of a node on this machine answers; others could say any address of ours."""
        here = {
            name: actor.node.local_http or actor.node.serving_http
            for name, actor in self._registry.nodes.items()
            if actor.is_local and actor.node.online
        }
        found = here.get(home) or next((address for address in here.values() if address), "")
        if not found or found.startswith("https:"):
            raise UnavailableError(
                "no inference server on the broker's machine answers, by which the dashboard asks; try again, or ask "
                "with 'tiercel infer'"
            )
        return found


def _why(content: bytes) -> str:
    try:
        told = json.loads(content)
    except (ValueError, RecursionError):
        told = None
    return str(told.get("error", "it said nothing")) if isinstance(told, dict) else "it said nothing that is understood"
