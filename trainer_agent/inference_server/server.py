"""Keeps one inference server alive on the node, whoever started it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tiercel.core.backoff import Attempts, Backoff
from tiercel.core.complaints import Complaint
from tiercel.core.locks import is_held
from tiercel.trainer_agent.inference_server import process as serving_process
from tiercel.trainer_agent.inference_server.client import ServedModel, ServingClient, ServingUnreachableError
from tiercel.trainer_agent.inference_server.endpoint_shares import EndpointTerms
from tiercel.trainer_agent.inference_server.endpoint_usage import UsageMeter
from tiercel.trainer_agent.inference_server.process import ServingPlaces, ServingState
from tiercel.trainer_agent.models.variants import place_of
from tiercel.v1 import nodes_pb2

_log = logging.getLogger(__name__)

_WATCH_SECONDS: Final = 0.5
_POLL_SECONDS: Final = 0.05
_BEGIN_SECONDS: Final = 60.0
_SILENCE_SECONDS: Final = 60.0
_DRAIN_SECONDS: Final = 12.0


@dataclass(frozen=True, slots=True)
class ServingPorts:
    """Ports that the user asked for; 0 for any free one."""

    http: int = 0  # of REST
    grpc: int = 0  # of gRPC
    tls_http: int = 0  # of REST for other machines
    tls_grpc: int = 0  # of gRPC for other machines


class ServingGoneError(Exception):
    """The inference server that was waited for has ended."""


class InferenceServer:
    """Finds a living server and adopts it, else starts one; starts it again when it dies.

    Args:
        confines: Makes those of the server and returns the files that it writes its pid to in order to enter.
        changed: Told when the status is another one; may not block.
        is_joined: Whether the broker is on another machine: nobody is told of the doors that only this one reaches.
    """

    def __init__(
        self,
        places: ServingPlaces,
        ports: ServingPorts,
        client: ServingClient,
        *,
        confines: Callable[[], tuple[Path, ...]],
        changed: Callable[[], None],
        environment: Mapping[str, str] = MappingProxyType({}),
        is_joined: bool = False,
    ) -> None:
        self._is_joined = is_joined
        self._places = places
        self._environment = environment
        self._wanted_ports = (ports.http, ports.grpc, ports.tls_http, ports.tls_grpc)
        self._ports = self._wanted_ports
        self._client = client
        self._confines = confines
        self._changed = changed
        self._state: ServingState | None = None
        self._served: tuple[ServedModel, ...] = ()
        self._is_known = False  # what it serves
        self._child: asyncio.subprocess.Process | None = None
        self._attempts = Attempts(Backoff(0.2, 5.0))
        self._meter = UsageMeter()
        words = "the inference server cannot be told what endpoints may use: %s"
        self._complaint = Complaint(_log, words)
        self._routes_number = 0
        # None: nobody has said what is wanted, or what this server was told.
        self._wanted_terms: EndpointTerms | None = None
        self._declared_terms: EndpointTerms | None = None

    def address(self) -> str:
        """Where REST answers, ``host:port``, or empty while it does not."""
        return self._state.http if self._state is not None else ""

    def status(self) -> nodes_pb2.ServingStatus:
        """What the broker is told: nothing until it is known what the server serves, which others hold for all."""
        if self._state is None or not self._is_known:
            return nodes_pb2.ServingStatus()
        versions = _versions([one for one in self._served if not one.why_not])
        state = self._state
        here = ("", "") if self._is_joined else (state.http, state.grpc)
        return nodes_pb2.ServingStatus(
            http=f"https://{state.https}" if state.https else here[0],
            grpc=f"grpcs://{state.grpcs}" if state.grpcs else here[1],
            versions=versions,
            local_http=here[0],
            local_grpc=here[1],
            routes_number=self._routes_number,
        )

    def why_not(self, model: str, version: int) -> str:
        """Why a version does not answer, in the server's words; empty where it does, or the server does not say."""
        return next((one.why_not for one in self._served if (one.model, one.version) == (model, version)), "")

    def want_terms(self, terms: EndpointTerms) -> None:
        """Endpoints may use this much, on whatever server there is; those not named are not limited."""
        self._wanted_terms = terms

    def take_usage(self) -> list[nodes_pb2.EndpointUsage]:
        """What the requests of endpoints took since this was last asked."""
        return self._meter.take()

    def tell_anew(self) -> None:
        """What is known of versions that answer is told once more, to a broker that may have forgotten it."""
        self._meter.tell_anew()

    def take_key_uses(self) -> list[nodes_pb2.KeyUse]:
        """What came with keys of endpoints since this was last asked."""
        return self._meter.take_keys()

    @property
    def lag_seconds(self) -> float | None:
        """By how much the server's event loop came late lately, or None while nobody knows."""
        return self._meter.lag_seconds

    async def run(self) -> None:
        """Keep a server alive until cancelled. It is left running then; see :meth:`stop`."""
        while True:
            state = await self._adopt() or await self._start()
            if state is not None:
                self._enter(state)
                await self._watch(state)
                self._leave()
            await self._reap()
            await asyncio.sleep(self._attempts.next_seconds())

    async def stop(self) -> None:
        """End the server; call it when :meth:`run` was cancelled."""
        child = self._child
        self._leave()
        if child is not None:
            await serving_process.end_child(child, _DRAIN_SECONDS)
        await serving_process.end(self._places, _DRAIN_SECONDS)

    async def _adopt(self) -> ServingState | None:
        """A server that lives already, once it is ready; one that never gets ready is ended."""
        if not is_held(self._places.lock_file):
            return None
        state = await self._wait_ready(self._living)
        if state is not None:
            _log.info("adopted the inference server with pid %d at %s", state.pid, state.http)
            return state
        if is_held(self._places.lock_file):
            _log.warning("the inference server that lives here does not get ready and is ended")
            await serving_process.end(self._places, _DRAIN_SECONDS)
        return None

    async def _start(self) -> ServingState | None:
        try:
            child = self._child = await serving_process.start(
                self._places, self._ports, self._environment, self._entry()
            )
        except OSError as error:
            _log.error("the inference server cannot be started: %s", error)
            return None
        state = await self._wait_ready(lambda: self._own(child))
        if state is not None:
            _log.info("the inference server listens at %s (REST) and %s (gRPC)", state.http, state.grpc)
            return state
        _log.error(
            "the inference server did not come up on ports %s; see %s for why", self._ports, self._places.log_file
        )
        self._ports = self._wanted_ports  # those of its predecessor may have been taken
        await serving_process.end_child(child, 0.0)
        return None

    def _living(self) -> ServingState | None:
        """A server that somebody else started; raises :class:`ServingGoneError` where it is gone."""
        if not is_held(self._places.lock_file):
            raise ServingGoneError
        return serving_process.find_living(self._places)

    def _own(self, child: asyncio.subprocess.Process) -> ServingState | None:
        """The server that we started; raises :class:`ServingGoneError` where it is gone."""
        if child.returncode is not None:
            raise ServingGoneError
        return serving_process.state_of(self._places, child.pid)

    async def _wait_ready(self, look: Callable[[], ServingState | None]) -> ServingState | None:
        """What the server says of itself once it is ready; None if it ends before or takes too long."""
        with contextlib.suppress(TimeoutError, ServingGoneError):
            async with asyncio.timeout(_BEGIN_SECONDS):
                while True:
                    state = look()
                    if state is not None and await self._client.is_ready(state.http):
                        return state
                    await asyncio.sleep(_POLL_SECONDS)
        return None

    async def _watch(self, state: ServingState) -> None:
        """Return when the server is gone."""
        clock = asyncio.get_running_loop().time
        began = last_heard = clock()
        while is_held(self._places.lock_file):
            state = self._follow(state)
            try:
                served = await self._client.served(state.http)
            except ServingUnreachableError as error:
                if clock() - last_heard > _SILENCE_SECONDS:
                    _log.warning("the inference server does not answer (%s) and is started again", error)
                    await serving_process.end(self._places, _DRAIN_SECONDS)
            else:
                last_heard = clock()
                self._note(served)
                await self._look_after_shares(state)
            await self._wait_a_moment()
        if clock() - began > _SILENCE_SECONDS:
            self._attempts.reset()
        _log.warning("the inference server with pid %d is gone and is started again", state.pid)

    def _follow(self, state: ServingState) -> ServingState:
        """The server that is there now: one may hand over to a fresh process, which keeps its lock and addresses."""
        if self._child is not None and self._child.returncode is not None:
            self._child = None  # the process that took over from it is not ours to wait for
        now = serving_process.find_living(self._places)
        if now is None or now.pid == state.pid:
            return state
        _log.info("the inference server with pid %d handed over to pid %d", state.pid, now.pid)
        self._enter(now)
        return now

    async def _look_after_shares(self, state: ServingState) -> None:
        """Tell the server what is wanted unless it knows, and read what it counted."""
        wanted = self._wanted_terms
        try:
            if wanted is not None and wanted != self._declared_terms:
                await self._client.declare_shares(state.http, wanted)
                self._declared_terms = wanted
            usage = await self._client.usage(state.http, self._meter.since)
            self._meter.note(usage)
            if usage.routes_number != self._routes_number:
                self._routes_number = usage.routes_number
                self._changed()
            self._complaint.note("")
        except ServingUnreachableError as error:  # tried again at the next look
            self._complaint.note(str(error))

    async def _wait_a_moment(self) -> None:
        """Until it is time to look again, or our own child has ended."""
        if self._child is None:
            await asyncio.sleep(_WATCH_SECONDS)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WATCH_SECONDS):
                await self._child.wait()

    async def _reap(self) -> None:
        if self._child is not None:
            await self._child.wait()
            self._child = None

    def _enter(self, state: ServingState) -> None:
        self._state = state
        self._declared_terms = None
        self._meter.begin_anew()
        self._ports = state.ports
        for file in self._entry():  # one that we did not start may be somewhere else
            try:
                file.write_text(str(state.pid))
            except OSError as error:
                _log.warning("the inference server does not enter %s: %s", file, error)
        self._changed()

    def _entry(self) -> tuple[Path, ...]:
        try:
            return self._confines()
        except OSError as error:
            _log.warning("the inference server has no memory of its own and may be starved: %s", error)
            return ()

    def _leave(self) -> None:
        if self._state is not None:
            self._state, self._served, self._is_known, self._routes_number = None, (), False, 0
            self._changed()

    def _note(self, served: tuple[ServedModel, ...]) -> None:
        if served != self._served or not self._is_known:
            self._served, self._is_known = served, True
            self._changed()


def _versions(served: Sequence[ServedModel]) -> list[nodes_pb2.ServedVersion]:
    """What answers, as the broker calls it; what only stands for variants has no version of its own."""
    places = [(place_of(one.model), one.version) for one in served]
    with_variants = {place.endpoint for place, _ in places if place.variant}
    return [
        nodes_pb2.ServedVersion(endpoint=place.endpoint, variant=place.variant, version=version)
        for place, version in places
        if place.variant or place.endpoint not in with_variants
    ]
