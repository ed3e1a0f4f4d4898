"""Asks one address of this machine for a while: ``python -m benchmarks.cluster.load CONFIGURATION``; prints JSON.

``rate`` requests a second, due at random (exponential) times, each with its delay from when it was due; with ``rate`` 0
``connections`` requests are under way at any time.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence
from typing import Any

import aiohttp
import uvloop

from benchmarks.averages import percentiles_ms

DEADLINE_SECONDS = 20.0
Json = dict[str, Any]


class Load:
    """Requests to one model, and what became of them."""

    def __init__(self, url: str, body: Json, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._body = body
        self._session = session
        self.delays: list[float] = []  # seconds
        self.failed = 0

    async def ask(self, due: float) -> None:
        """One request."""
        try:
            async with self._session.post(self._url, json=self._body) as response:
                await response.read()
                if response.status != 200:
                    self.failed += 1
                    return
        except (aiohttp.ClientError, TimeoutError):
            self.failed += 1
            return
        self.delays.append(time.monotonic() - due)

    async def as_fast_as_it_goes(self, connections: int, seconds: float) -> None:
        """So many at a time."""
        end = time.monotonic() + seconds

        async def one_after_the_other() -> None:
            while (now := time.monotonic()) < end:
                await self.ask(now)

        await asyncio.gather(*(one_after_the_other() for _ in range(connections)))

    async def at_rate(self, rate: float, seconds: float, seed: int) -> None:
        """So many a second, whether or not earlier ones are answered."""
        chance = random.Random(seed)
        due = begin = time.monotonic()
        async with asyncio.TaskGroup() as group:
            while (due := due + chance.expovariate(rate)) < begin + seconds:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                group.create_task(self.ask(due))


async def run(given: Json) -> Json:
    """What came of it."""
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=DEADLINE_SECONDS)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        warm = Load(given["url"], given["body"], session)
        await warm.as_fast_as_it_goes(4, given["warm_seconds"])
        load = Load(given["url"], given["body"], session)
        if given["rate"]:
            await load.at_rate(given["rate"], given["seconds"], given["seed"])
        else:
            await load.as_fast_as_it_goes(given["connections"], given["seconds"])
    p50, p99, _ = percentiles_ms(load.delays)
    return {
        "answered": len(load.delays),
        "failed": load.failed,
        "per_second": round(len(load.delays) / given["seconds"], 1),
        "p50_ms": round(p50, 1),
        "p99_ms": round(p99, 1),
    }


def main(arguments: Sequence[str]) -> None:
    """See the module."""
    sys.stdout.write(json.dumps(uvloop.run(run(json.loads(arguments[0])))))


if __name__ == "__main__":
    main(sys.argv[1:])
