"""What happens, as it happens, to all browsers: one publisher, a bounded ring for each tenant, and server-sent events.

A ring outlives its last reader for a while, so that a browser which comes back goes on where it was; one that was away
for longer, or that is slower than what happens, is told to ask for everything anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections import deque
from typing import TYPE_CHECKING, Any

from tiercel.broker.api.gate import Places
from tiercel.broker.conversion import event_of
from tiercel.core.events import JobEvent

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from tiercel.core.events import Event

    Lists = Callable[[str], Awaitable[dict[str, Any]]]
    JobNow = Callable[[str, str], Awaitable[Any]]

# What a ring remembers; beyond it the oldest events go.
RING_EVENTS = 1_000
RING_BYTES = 4 * 1024 * 1024
EVENTS_AT_A_TIME = 100
# Of jobs that changed since the last look; beyond that all is to be asked anew.
MOST_CHANGED_JOBS = 200
TICK_SECONDS = 0.5
LISTS_SECONDS = 1.0
KEEP_SECONDS = 60.0
ALIVE_SECONDS = 15.0
RETRY_MILLISECONDS = 500
MOST_STREAMS, MOST_STREAMS_OF_A_TENANT = 128, 32


class _Ring:
    """What is told one tenant."""

    def __init__(self) -> None:
        self.changed_jobs: dict[str, None] = {}
        self.lists: dict[str, bytes] = {}
        self.readers = 0
        self.left_at = 0.0
        self.last = 0
        self.grown = asyncio.Event()
        self._events: deque[tuple[str, bytes]] = deque()
        self._bytes = 0

    def add(self, kind: str, content: bytes) -> None:
        self._events.append((kind, content))
        self._bytes += len(content)
        self.last += 1
        while len(self._events) > RING_EVENTS or (self._bytes > RING_BYTES and len(self._events) > 1):
            self._bytes -= len(self._events.popleft()[1])
        self.wake()

    def wake(self) -> None:
        self.grown.set()
        self.grown = asyncio.Event()

    def after(self, number: int) -> list[tuple[int, str, bytes]] | None:
        """Some events behind one; None where those that follow it are gone."""
        first = self.last - len(self._events) + 1
        if number > self.last or number < first - 1:
            return None
        begin = number + 1 - first
        found = [self._events[place] for place in range(begin, min(len(self._events), begin + EVENTS_AT_A_TIME))]
        return [(number + 1 + place, kind, content) for place, (kind, content) in enumerate(found)]


class Publisher:
    """Tells what happens.

    Args:
        now: Seconds, monotonic.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._life = secrets.token_hex(4)
        self._rings: dict[str, _Ring] = {}
        self._places = Places("a tenant's streams", MOST_STREAMS_OF_A_TENANT, MOST_STREAMS)
        self._closed = False

    @property
    def streams(self) -> int:
        """How many browsers follow."""
        return sum(ring.readers for ring in self._rings.values())

    def publish_nowait(self, event: Event) -> None:
        """Tell of an event; never blocks, never fails."""
        if not isinstance(event, JobEvent) or (ring := self._rings.get(event.tenant)) is None:
            return
        told = event_of(event).to_json()
        self.tell(event.tenant, told["event"], told)
        ring.changed_jobs[event.job_id] = None

    def tell(self, tenant: str, kind: str, content: Any) -> None:
        """Tell a tenant, or (an empty name) operators, something of a kind, as JSON types; never blocks."""
        if (ring := self._rings.get(tenant)) is not None:
            ring.add(kind, _encoded(content))

    async def run(self, lists: Lists, job_now: JobNow) -> None:
        """Look at what has changed for as long as the broker lives.

        Args:
            lists: What a tenant (an empty name: an operator) is told of nodes and endpoints, by the kind of the event.
            job_now: A tenant's job as it is now, as JSON types; None where it has none of that id.
        """
        looked_at = 0.0
        while True:
            with_lists = self._now() - looked_at >= LISTS_SECONDS
            if with_lists:
                looked_at = self._now()
            for tenant, ring in list(self._rings.items()):
                if not ring.readers and self._now() - ring.left_at > KEEP_SECONDS:
                    del self._rings[tenant]
                    continue
                await self._tell_jobs(tenant, ring, job_now)
                if with_lists:
                    for kind, content in (await lists(tenant)).items():
                        encoded = _encoded(content)
                        if ring.lists.get(kind) != encoded:
                            ring.lists[kind] = encoded
                            ring.add(kind, encoded)
            await asyncio.sleep(TICK_SECONDS)

    @staticmethod
    async def _tell_jobs(tenant: str, ring: _Ring, job_now: JobNow) -> None:
        changed, ring.changed_jobs = ring.changed_jobs, {}
        if len(changed) > MOST_CHANGED_JOBS:
            ring.add("reset", b"{}")
            return
        for job_id in changed:
            if (job := await job_now(tenant, job_id)) is not None:
                ring.add("job", _encoded(job))

    async def follow(self, tenant: str, last_id: str) -> AsyncGenerator[bytes]:
        """What is told a tenant, as server-sent events; ends where whoever reads is too slow.

        Args:
            tenant: Whom; empty for an operator.
            last_id: The last event that was read before; empty for none.

        Raises:
            OverloadedError: There are as many streams as there may be.
        """
        with self._places.taken(tenant):
            ring = self._rings.setdefault(tenant, _Ring())
            ring.readers += 1
            try:
                async with contextlib.aclosing(self._pieces(ring, last_id)) as pieces:
                    async for piece in pieces:
                        yield piece
            finally:
                ring.readers -= 1
                ring.left_at = self._now()

    async def _pieces(self, ring: _Ring, last_id: str) -> AsyncGenerator[bytes]:
        number = self._number_of(last_id) if last_id else ring.last
        yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
        if ring.after(number) is None:
            number = ring.last
            yield self._told(number, "reset", b"{}")
        while not self._closed:
            grown = ring.grown
            found = ring.after(number)
            if found is None:
                return
            if found:
                number = found[-1][0]
                yield b"".join(self._told(*each) for each in found)
                continue
            try:
                async with asyncio.timeout(ALIVE_SECONDS):
                    await grown.wait()
            except TimeoutError:
                yield b": alive\n\n"

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        for ring in self._rings.values():
            ring.wake()

    def _number_of(self, last_id: str) -> int:
        life, _, number = last_id.partition("-")
        return int(number) if life == self._life and number.isascii() and number.isdigit() and len(number) < 18 else -1

    def _told(self, number: int, kind: str, content: bytes) -> bytes:
        return b"id: %s-%d\nevent: %s\ndata: %s\n\n" % (self._life.encode(), number, kind.encode(), content)


def _encoded(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
