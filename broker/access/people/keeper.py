"""Keeps a provider's keys: fetched now and then, and at once for one that is not known, but not again and again."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tiercel.core.backoff import Attempts, Backoff
from tiercel.core.errors import OverloadedError, UnavailableError
from tiercel.core.tasks import run_until_one_ends

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tiercel.broker.access.people.keys import ProviderKey
    from tiercel.broker.actors.clock import Clock

logger = logging.getLogger(__name__)

# How often the keys are asked for while nobody misses one; so long one that was withdrawn goes on to count.
FETCH_AGAIN_SECONDS = 3600.0
# How often at most, whoever asks: the id of a key stands in a token that anybody can write.
LEAST_SECONDS = 60.0
# How long keys count while the provider does not answer.
GOOD_SECONDS = 24 * 3600.0
# Of a provider that has not answered yet; one that has is asked again as rarely as above.
RETRY = Backoff(first_seconds=1.0, longest_seconds=LEAST_SECONDS)
# Who waits for keys keeps one of the listener's calls.
MOST_WAITING = 64
WAIT_SECONDS = 8.0


class KeyKeeper:
    """Knows the keys that count.

    Args:
        fetch: Asks the provider; an error if it does not answer as it should.
        changed: Is told the keys that count whenever they have been fetched, or count no more.
    """

    def __init__(
        self,
        fetch: Callable[[], Awaitable[Mapping[str, ProviderKey]]],
        clock: Clock,
        changed: Callable[[Mapping[str, ProviderKey]], None],
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._changed = changed
        self._keys: Mapping[str, ProviderKey] = {}
        self._fetched_at: float | None = None
        self._problem = "was not asked yet"
        self._attempts = Attempts(RETRY)
        self._may_fetch_at = 0.0
        self._fetch_at = 0.0
        self._fetching = False
        self._wanted = asyncio.Event()
        # The end of the fetch that goes on, or comes next.
        self._done = asyncio.Event()
        self._waiting = 0

    async def find(self, key_id: str) -> ProviderKey | None:
        """The key of an id; None if the provider has none, as far as could be asked.

        Raises:
            UnavailableError: No keys could be fetched yet, or for too long.
            OverloadedError: Too many wait already for keys that are not known.
        """
        if key_id not in self._keys and (self._fetching or self._clock.alive() >= self._may_fetch_at):
            await self._wait()
        if self._fetched_at is None:
            raise UnavailableError(f"the provider that signs tokens {self._problem}; try again in a minute")
        return self._keys.get(key_id)

    async def run(self) -> None:
        """Fetch when it is time, or when somebody wants it, for ever."""
        while True:
            await self._fetch_once()
            self._wanted.clear()
            seconds = max(0.0, self._fetch_at - self._clock.alive())
            await run_until_one_ends(wanted=_wait_for(self._wanted), due=self._clock.sleep(seconds))

    async def _wait(self) -> None:
        if self._waiting >= MOST_WAITING:
            raise OverloadedError("the keys of the provider are being fetched, and too many wait for them; try again")
        done = self._done
        self._wanted.set()
        self._waiting += 1
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await done.wait()
        except TimeoutError:
            raise UnavailableError("the keys of the provider take too long to come; try again in a minute") from None
        finally:
            self._waiting -= 1

    async def _fetch_once(self) -> None:
        self._fetching = True
        try:
            keys = await self._fetch()
        except UnavailableError as error:
            self._fail(error)
        except Exception:  # the border: whatever a provider answers, it does not end the broker
            logger.exception("a defect of Tiercel: please report it")
            self._fail(UnavailableError("the provider gave an answer that was not understood"))
        else:
            self._take(keys)
        finally:
            self._fetching = False
            self._done.set()
            self._done = asyncio.Event()

    def _take(self, keys: Mapping[str, ProviderKey]) -> None:
        if keys.keys() != self._keys.keys():
            logger.info("the provider signs with %d keys: %s", len(keys), ", ".join(map(repr, keys)))
        now = self._clock.alive()
        self._keys, self._fetched_at = keys, now
        self._may_fetch_at, self._fetch_at = now + LEAST_SECONDS, now + FETCH_AGAIN_SECONDS
        self._attempts.reset()
        self._changed(keys)

    def _fail(self, error: UnavailableError) -> None:
        now = self._clock.alive()
        self._problem = error.message.removeprefix("the provider ")
        pause = self._attempts.next_seconds() if self._fetched_at is None else LEAST_SECONDS
        self._may_fetch_at = self._fetch_at = now + pause
        logger.warning("its keys cannot be fetched: %s", error.message)
        if self._fetched_at is not None and now - self._fetched_at > GOOD_SECONDS:
            logger.error("%s; nobody gets in by its tokens any more until it answers", error.message)
            self._keys, self._fetched_at = {}, None
            self._changed(self._keys)


async def _wait_for(event: asyncio.Event) -> None:
    await event.wait()
