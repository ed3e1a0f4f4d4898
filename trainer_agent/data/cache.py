"""Data that tenants name by URL: fetched once for a node, kept while there is room, seen only when it is complete."""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tiercel.core.data_sets import DataSet
from tiercel.trainer_agent.data.cache_table import CacheTable, Entry
from tiercel.trainer_agent.data.fetching import Fetch, Fetched, FetchLimits, fetching
from tiercel.trainer_agent.data.mounts import DataMount
from tiercel.trainer_agent.data.sources import AllowedSources, shown
from tiercel.trainer_agent.data.transfer import FetchError, Found
from tiercel.trainer_agent.errors import DataGoneError, RunFailedError

_AT_ONCE: Final = 4
_TICK_SECONDS: Final = 0.5
_SAID_SECONDS: Final = 5.0
_MIB: Final = 1024**2


@dataclass(frozen=True, slots=True)
class DataLimits:
    """What data of tenants may take."""

    cache_bytes: int = 50 * 1024**3  # on the disk, together
    reserve_bytes: int = 512 * _MIB  # what the disk has to have left
    sources: AllowedSources = field(default_factory=AllowedSources)  # where it may come from
    fetch: FetchLimits = field(default_factory=FetchLimits)  # how long it may take
    pauses: tuple[float, ...] = (1.0, 5.0, 25.0)  # seconds before each further try, where one may go better


@dataclass(frozen=True, slots=True)
class Asker:
    """A run that needs data."""

    run_id: str  # the run
    say: Callable[[str], None]  # writes a line into its log
    check: Callable[[], None]  # raises where it is not to start any more; called all the time

    async def wait(self, seconds: float) -> None:
        """Let time pass."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.check()
            await asyncio.sleep(min(left, _TICK_SECONDS))


class DataCache:
    """Fetches what is not there yet."""

    def __init__(self, folder: Path, limits: DataLimits) -> None:
        self.table = CacheTable(folder, limits.cache_bytes, limits.reserve_bytes)
        self._limits = limits
        # One fetch of a URL at a time: whoever waited for it finds what it brought.
        self._turns: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def provide(self, asker: Asker, wanted: DataSet) -> DataMount:
        """Have a data set here, for as long as the run lives.

        Raises:
            RunFailedError: It cannot be had; says why.
            DataGoneError: It cannot be had now, through no fault of the job.
        """
        trusted = self._limits.sources.check(wanted.url)
        since = time.monotonic()
        turn = self._turns.setdefault(wanted.url, asyncio.Lock())
        async with _taken(turn, asker):
            entry = await self._known(asker, wanted, since) or await self._fetched(asker, wanted, trusted)
        asker.say(f"data set {wanted.name}: {_mib(entry.size)} of {shown(wanted.url)}, SHA-256 {entry.sha256}")
        return DataMount(wanted.name, entry.path, is_folder=not entry.name, sha256=entry.sha256)

    async def _known(self, asker: Asker, wanted: DataSet, since: float) -> Entry | None:
        """What needs no asking: it is what the job says, or came while we waited for our turn."""

        def fits(entry: Entry) -> bool:
            if wanted.sha256:
                return entry.url == wanted.url and entry.sha256 == wanted.sha256
            return entry.url == wanted.url and entry.fetched_at > since

        return await asyncio.to_thread(self.table.take, asker.run_id, fits)

    async def _fetched(self, asker: Asker, wanted: DataSet, trusted: str) -> Entry:
        pauses = iter(self._limits.pauses)
        while True:
            try:
                return await self._fetch(asker, wanted, trusted)
            except FetchError as error:
                await _bear(asker, wanted, error, next(pauses, None))

    async def _fetch(self, asker: Asker, wanted: DataSet, trusted: str) -> Entry:
        async with _taken(self._room, asker), self._arriving() as (place, content):
            async with fetching(place, self._limits.fetch, asker.check, is_trusted=bool(trusted)) as fetch:
                found = await fetch.order(
                    url=wanted.url,
                    folder=str(content),
                    trusted=trusted,
                    limit_bytes=self.table.quota_bytes,
                    silence_seconds=self._limits.fetch.silence_seconds,
                    memory_bytes=self._limits.fetch.memory_bytes,
                )
                known = await self._same(asker, wanted, found)
                if known is not None:
                    return known
                fetched = await self._copy(asker, wanted, fetch, found, place)
            _require(wanted, fetched.sha256)
            entry = Entry(wanted.url, found.version, fetched.sha256, fetched.size, fetched.files, found.name)
            return await asyncio.to_thread(self.table.finish, asker.run_id, place, entry)

    @asynccontextmanager
    async def _arriving(self) -> AsyncIterator[tuple[Path, Path]]:
        """A place for what arrives, of which nothing is left unless it has become an entry."""
        place = None
        try:
            place, content = await asyncio.to_thread(self.table.begin)
            yield place, content
        except OSError as error:
            raise FetchError(f"the node cannot keep it ({error.strerror or error})", again=True) from error
        finally:
            if place is not None:
                await asyncio.to_thread(self.table.abandon, place)

    async def _same(self, asker: Asker, wanted: DataSet, found: Found) -> Entry | None:
        """What is here of the version that is there."""
        if not found.version:
            return None
        known = await asyncio.to_thread(
            self.table.take, asker.run_id, lambda entry: (entry.url, entry.version) == (wanted.url, found.version)
        )
        if known is not None:
            _require(wanted, known.sha256)
        return known

    async def _copy(self, asker: Asker, wanted: DataSet, fetch: Fetch, found: Found, place: Path) -> Fetched:
        whole = f" of {_mib(found.size)}" if found.size >= 0 else ""
        asker.say(f"data set {wanted.name}: fetching {shown(wanted.url)}{whole.replace(' of', ',')}")
        said_at = time.monotonic()

        async def grew(size: int) -> None:
            nonlocal said_at
            await asyncio.to_thread(self.table.grow, place, size)
            if time.monotonic() - said_at >= _SAID_SECONDS:
                said_at = time.monotonic()
                asker.say(f"data set {wanted.name}: {_mib(size)}{whole}")

        fetched = await fetch.copy(grew)
        await asyncio.to_thread(self.table.grow, place, fetched.size)
        return fetched


@asynccontextmanager
async def _taken(turn: asyncio.Lock | asyncio.Semaphore, asker: Asker) -> AsyncIterator[None]:
    """While it is our turn; a run that is not to start any more does not wait for it."""
    while True:
        asker.check()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TICK_SECONDS):
                await turn.acquire()
                break
    try:
        yield
    finally:
        turn.release()


async def _bear(asker: Asker, wanted: DataSet, error: FetchError, pause: float | None) -> None:
    """Wait for the next try, if one may go better."""
    words = f"The data set {wanted.name!r} cannot be had from {shown(wanted.url)}: {error.message}"
    if not error.again:
        raise RunFailedError(f"{words}.") from error
    if pause is None:
        raise DataGoneError(words[0].lower() + words[1:]) from error
    asker.say(f"data set {wanted.name}: {error.message}; once more in {pause:g} s")
    await asker.wait(pause)


def _require(wanted: DataSet, sha256: str) -> None:
    if wanted.sha256 and wanted.sha256 != sha256:
        raise FetchError(f"it has the SHA-256 {sha256}, and the job asks for {wanted.sha256}")


def _mib(size: int) -> str:
    return f"{size / _MIB:.1f} MiB"
