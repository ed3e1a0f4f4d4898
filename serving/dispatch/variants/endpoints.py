"""All endpoints with variants, by name, and what the data plane asks of them."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tiercel.core.errors import InvalidRequestError, NotFoundError, TiercelError
from tiercel.serving.dispatch.call import Call, seconds_behind
from tiercel.serving.dispatch.dispatcher import Dispatcher
from tiercel.serving.dispatch.variants import configuration
from tiercel.serving.dispatch.variants.configuration import ENDPOINT_VERSION, Configuration
from tiercel.serving.dispatch.variants.endpoint import Endpoint
from tiercel.serving.explaining.recent_requests import Trace
from tiercel.serving.models import repository
from tiercel.serving.models.configuration import ENDPOINT_PLATFORM
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.models.registry import Registry, VersionState
from tiercel.serving.requests import Answered, InferRequest
from tiercel.serving.runtime.engine import Session
from tiercel.serving.tensors import described

# Between two looks whether those who wait for an endpoint that was unloaded have their answers.
_LOOK_SECONDS = 0.01


class Endpoints:
    """See the module.

    Args:
        timeout: Seconds in which a request is answered at the latest.
    """

    def __init__(self, root: Path, registry: Registry, dispatcher: Dispatcher, timeout: float) -> None:
        self._root = root
        self._registry = registry
        self._dispatcher = dispatcher
        # A table takes a second to solve; a thread for that is there once an endpoint wants one.
        self._solver = ThreadPoolExecutor(1, "solver")
        self._timeout = timeout
        self._endpoints: dict[str, Endpoint] = {}
        self._leaving: dict[str, Endpoint] = {}  # unloaded; those who came before have their answers still to come
        self._of_one_model: dict[str, Endpoint] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Of all endpoints."""
        return tuple(self._endpoints)

    def variants(self) -> dict[str, tuple[str, str]]:
        """Whose variant each model is, by its name: the endpoint, and what that calls it."""
        return {
            variant.model: (name, variant.name)
            for name, endpoint in self._endpoints.items()
            for variant in endpoint.configuration.variants
        }

    async def load(self, name: str) -> bool:
        """Read an endpoint's configuration anew; requests that wait go on waiting.

        Returns:
            Whether this is an endpoint's name.

        Raises:
            InvalidRequestError: The name is impossible.
            ArtefactRefusedError: The configuration is wrong; what was there stays.
        """
        folder = self._root / repository.checked_name(name)
        found = await asyncio.to_thread(configuration.read, folder)
        if found is None:
            return False
        old = self._endpoints.get(name)
        if old is None or old.configuration != found:
            self._take(name, found)
        return True

    def check_fits(self, model: str, session: Session) -> None:
        """Check that a new version of a model fits the endpoints that it is a variant of.

        Raises:
            ArtefactRefusedError: It takes or gives something else than the other variants of one.
        """
        for endpoint in self._endpoints.values():
            endpoint.check_fits(model, session)

    def _take(self, name: str, chosen: Configuration) -> None:
        endpoint = self._endpoints.get(name)
        if endpoint is None and (endpoint := self._leaving.pop(name, None)) is not None:
            self._endpoints[name] = endpoint
            self._registry.record(name).set_status(ENDPOINT_VERSION, VersionState.READY)
        if endpoint is not None:
            endpoint.configure(chosen)
            return
        self._endpoints[name] = Endpoint(name, chosen, self._registry, self._dispatcher, self._solver, self._timeout)
        self._registry.record(name).set_status(ENDPOINT_VERSION, VersionState.READY)

    async def unload(self, name: str) -> bool:
        """Take no more requests of an endpoint, and return once those that wait have their answers, or can have none.

        Returns:
            Whether there was one.
        """
        endpoint = self._endpoints.pop(name, None)
        if endpoint is None:
            return False
        self._registry.record(name).set_status(ENDPOINT_VERSION, VersionState.UNAVAILABLE, "unloaded")
        self._leaving[name] = endpoint
        while self._leaving.get(name) is endpoint and len(endpoint) and endpoint.has_variants():  # noqa: ASYNC110 - short
            await asyncio.sleep(_LOOK_SECONDS)
        if self._leaving.get(name) is endpoint:  # not loaded anew meanwhile
            del self._leaving[name]
            endpoint.close()
        return True

    def tell_of_unloaded(self) -> None:
        """Models were unloaded: who waits for an endpoint that has no variant left hears of it."""
        for endpoint in (*self._endpoints.values(), *self._leaving.values()):
            endpoint.has_variants()
        for name, endpoint in tuple(self._of_one_model.items()):
            if not endpoint.has_variants():
                endpoint.close()
                del self._of_one_model[name]

    def knows(self, name: str) -> bool:
        """Whether there is an endpoint of this name."""
        return name in self._endpoints

    def answers(self, name: str) -> bool:
        """Whether an endpoint of this name has a variant that is live; one that was just loaded has none at first."""
        endpoint = self._endpoints.get(name)
        return endpoint is not None and endpoint.is_live

    def check_room(self, name: str) -> None:
        """See :meth:`DataPlane.check_room`; it says nothing of what is no endpoint's name.

        Raises:
            CapacityExceededError: Too much is waiting.
        """
        endpoint = self._endpoints.get(name)
        if endpoint is not None and not endpoint.room.has_room():
            endpoint.account.requests += 1
            endpoint.account.delays.failed(time.perf_counter())
            endpoint.room.check()

    def submit(self, request: InferRequest, on_answer: Answered, trace: Trace | None = None) -> Call | None:
        """Answer a request of an endpoint that there is, and note that; see :meth:`DataPlane.submit`."""
        try:
            _check_version(request.model, request.version)
            _check_priority(request)
        except TiercelError as error:
            on_answer(error)
            return None
        return self._submit(self._endpoints[request.model], request, on_answer, trace)

    def submit_to_model(self, request: InferRequest, on_answer: Answered, trace: Trace | None = None) -> Call | None:
        """The same for a model whose live version has cheap variants: these and the version itself are what answers.

        It has no version of its own, and no priorities.
        """
        name = request.model
        endpoint = self._of_one_model.get(name)
        if endpoint is None:
            chosen = configuration.of_one_model(name)
            endpoint = Endpoint(name, chosen, self._registry, self._dispatcher, self._solver, self._timeout)
            self._of_one_model[name] = endpoint
        try:
            endpoint.room.check()
        except TiercelError as error:
            endpoint.account.requests += 1
            endpoint.account.delays.failed(time.perf_counter())
            on_answer(error)
            return None
        return self._submit(endpoint, request, on_answer, trace)

    def _submit(
        self, endpoint: Endpoint, request: InferRequest, on_answer: Answered, trace: Trace | None
    ) -> Call | None:
        try:
            call = endpoint.checked(request, on_answer, time.perf_counter())
        except TiercelError as error:
            on_answer(error)
            return None
        call.trace = trace
        endpoint.account.requests += 1
        try:
            self._dispatcher.queue(call)
        except TiercelError as error:
            call.ended = True
            call.fail(error, call.begin)
            return None
        return call

    def metadata(self, name: str, version: str = "") -> dict[str, Any]:
        """What the protocol says of a model, and the variants, as parameters.

        Raises:
            InvalidRequestError: ``version`` is no version number.
            NotFoundError: The endpoint does not have this version.
            UnavailableError: No variant is loaded.
        """
        endpoint = self._endpoints[name]
        _check_version(name, version)
        session = endpoint.answering()[0].session
        chosen = endpoint.configuration
        return {
            "name": name,
            "versions": [str(ENDPOINT_VERSION)],
            "platform": ENDPOINT_PLATFORM,
            "inputs": described(session.inputs),
            "outputs": described(session.outputs),
            "parameters": {
                "variants": endpoint.described(),
                "objective_seconds": endpoint.objective_wanted,
                "utility": chosen.utility.form,
                "scheduler": chosen.scheduler,
            },
        }

    def answering(self, name: str, version: str = "") -> list[LoadedVersion]:
        """The versions of an endpoint's variants that answer for it, the most accurate first.

        Raises:
            InvalidRequestError: ``version`` is no version number.
            NotFoundError: The endpoint does not have this version.
            UnavailableError: No variant is loaded.
        """
        _check_version(name, version)
        return self._endpoints[name].answering()

    def close(self) -> None:
        """The server leaves."""
        for endpoint in (*self._endpoints.values(), *self._leaving.values(), *self._of_one_model.values()):
            endpoint.close()
        self._endpoints.clear()
        self._leaving.clear()
        self._solver.shutdown(wait=False, cancel_futures=True)


def _check_version(endpoint: str, version: str) -> None:
    """Raise unless this is the only version of an endpoint, or empty."""
    if not version or version == str(ENDPOINT_VERSION):
        return
    if not repository.is_version(version):
        raise InvalidRequestError(f"version {version[:40]!r} is not a number from 1")
    raise NotFoundError(
        f"'{endpoint}' is an endpoint with variants, whose only version is {ENDPOINT_VERSION}; "
        "leave the version out, or ask a variant for one of its own by its own name"
    )


def _check_priority(request: InferRequest) -> None:
    """Raise unless it is that of those who say none: who is first by another order than time is late by that one."""
    if request.priority and seconds_behind(request.priority):
        raise InvalidRequestError(
            f"priority is {request.priority}, but '{request.model}' answers requests in the order in which they are "
            "due; leave it out, and give a timeout to be due earlier"
        )
