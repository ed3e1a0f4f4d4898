"""Open-loop load: requests are due at a steady rate, whether or not earlier ones were answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import aiohttp

from testing.asking import Target, WrongAnswerError
from testing.load_record import LoadRecord, Request

REQUEST_TIMEOUT_SECONDS = 10.0
MAX_UNANSWERED = 256
LOOK_SECONDS = 0.05
"""Pause between two looks at whether an endpoint has got its first version."""

FirstAnswer = Callable[[str, int, float], None]
"""Called with an endpoint, a version that just answered for the first time, and when."""


class LoadGenerator:
    """Asks all endpoints that have a version, in turn, so that the total is a steady number of requests a second.

    Nothing is tried twice, and everything is recorded. Latency counts from when a request was due, so that a server
    that stalls cannot hide behind requests that were not sent meanwhile.

    Args:
        targets: The endpoints.
        rate: Requests a second, in total.
        record: Where everything goes.
        first_answer: Told about each version's first answer.
    """

    def __init__(
        self, targets: Sequence[Target], rate: float, record: LoadRecord, first_answer: FirstAnswer | None = None
    ) -> None:
        self._targets = targets
        self._rate = rate
        self._record = record
        self._first_answer = first_answer or (lambda endpoint, version, at: None)
        self._unanswered = 0
        self._any_live = asyncio.Event()
        # Wall-clock times compare with those of the broker; measuring goes by the loop's clock, which never jumps.
        self._epoch = time.time() - time.monotonic()

    async def run(self, stopped: asyncio.Event) -> None:
        """Send requests until ``stopped`` is set, then wait for the last answers."""
        timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_SECONDS)
        connector = aiohttp.TCPConnector(limit=MAX_UNANSWERED)
        async with (
            aiohttp.ClientSession(timeout=timeout, connector=connector) as session,
            asyncio.TaskGroup() as group,
        ):
            looking = group.create_task(self._look_for_versions(session))
            sending = group.create_task(self._send(session, group))
            await stopped.wait()
            looking.cancel()
            sending.cancel()

    async def _look_for_versions(self, session: aiohttp.ClientSession) -> None:
        while waiting := [target for target in self._targets if not target.is_live]:
            for target in waiting:
                try:
                    await target.look(session)
                except (aiohttp.ClientError, TimeoutError):
                    # The server itself may not be there yet: look again.
                    continue
                if target.is_live:
                    self._any_live.set()
            await asyncio.sleep(LOOK_SECONDS)

    async def _send(self, session: aiohttp.ClientSession, group: asyncio.TaskGroup) -> None:
        await self._any_live.wait()
        started = time.monotonic()
        number = 0
        while True:
            due = started + number / self._rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            live = [target for target in self._targets if target.is_live]
            self._start(session, group, live[number % len(live)], due)
            number += 1

    def _start(self, session: aiohttp.ClientSession, group: asyncio.TaskGroup, target: Target, due: float) -> None:
        if self._unanswered >= MAX_UNANSWERED:
            self._fail(target, due, f"not sent: {MAX_UNANSWERED} requests have no answer yet")
            return
        self._unanswered += 1
        group.create_task(self._ask(session, target, due, time.monotonic() - due))

    async def _ask(self, session: aiohttp.ClientSession, target: Target, due: float, late: float) -> None:
        try:
            answer = await target.ask(session)
        except WrongAnswerError as error:
            self._fail(target, due, str(error))
        except (aiohttp.ClientError, TimeoutError) as error:
            self._fail(target, due, f"no answer ({error!r})")
        else:
            latency = time.monotonic() - due
            self._record.add(Request(self._epoch + due, target.name, latency, answer.version, answer.score, late))
            if answer.version > target.latest_version:
                target.latest_version = answer.version
                self._first_answer(target.name, answer.version, self._epoch + due + latency)
        finally:
            self._unanswered -= 1

    def _fail(self, target: Target, due: float, why: str) -> None:
        latency = time.monotonic() - due
        self._record.add_failure(Request(self._epoch + due, target.name, latency, None, None), why)
