"""What completion knows of brokers: a small file in the user's cache, one entry for each target."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tiercel.broker.cli.session import Target

_FRESH_SECONDS = 3.0
_ASKING_SECONDS = 10.0
_MOST_TARGETS = 16
_MOST_WORDS = 200
_MOST_BYTES = 1024 * 1024
_ABOUT_LENGTH = 60


@dataclass(frozen=True, slots=True)
class KnownJob:
    """A job, as far as completion needs it."""

    id: str  # what is offered
    about: str  # state and name
    active: bool  # whether it had not finished


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one target."""

    at: float  # when it was asked, in seconds since the Unix epoch
    jobs: tuple[KnownJob, ...] = ()  # the newest jobs, the latest first
    endpoints: tuple[str, ...] = ()  # names

    @property
    def is_fresh(self) -> bool:
        """Whether to ask again is not worth it; a clock that was put back must not make it fresh for ever."""
        return 0 <= time.time() - self.at < _FRESH_SECONDS


NOTHING: Final = Known(0.0)


def read(target: Target) -> Known:
    """What is known of a target; nothing where the file is not there or not one of ours."""
    try:
        entry = _read_all()[_key(target)]
        jobs = tuple(KnownJob(str(job["id"]), str(job["about"]), bool(job["active"])) for job in entry["jobs"])
        return Known(float(entry["at"]), jobs, tuple(map(str, entry["endpoints"])))
    except (OSError, ValueError, LookupError, TypeError):
        return NOTHING


def keep(target: Target, known: Known) -> None:
    """Put it into the file, which holds the latest targets and no more words than a shell can show.

    Raises:
        OSError: The file cannot be written.
    """
    from tiercel.core.private_files import write_private

    bounded = Known(known.at, known.jobs[:_MOST_WORDS], known.endpoints[:_MOST_WORDS])
    try:
        entries = _read_all()
    except (OSError, ValueError):
        entries = {}
    entries.pop(_key(target), None)
    latest = dict(list(entries.items())[-_MOST_TARGETS + 1 :])
    path = _path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(path, json.dumps({**latest, _key(target): asdict(bounded)}).encode())


def renew_in_background(target: Target) -> None:
    """Have another process ask the broker; whoever called goes on at once."""
    import subprocess

    words = (str(target.state_dir or ""), target.broker, target.tenant)
    silent: Any = subprocess.DEVNULL
    subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, *words],
        stdin=silent,
        stdout=silent,
        stderr=silent,
        start_new_session=True,
    )


async def _ask(target: Target) -> Known:
    import asyncio

    from tiercel.broker.cli.session import open_client

    async with asyncio.timeout(_ASKING_SECONDS), open_client(target) as client:
        jobs = await client.list_jobs(limit=_MOST_WORDS)
        endpoints = await client.list_endpoints()
    known = tuple(
        KnownJob(job.id, _plain(f"{job.state.value} {job.spec.name}"), not job.state.is_final) for job in reversed(jobs)
    )
    return Known(time.time(), known, tuple(endpoint.name for endpoint in endpoints))


def _plain(text: str) -> str:
    # Shells take each line for an offer, and some of them control characters for commands.
    return "".join(character for character in text if character.isprintable())[:_ABOUT_LENGTH]


def _read_all() -> dict[str, Any]:
    with _path().open("rb") as file:
        entries = json.loads(file.read(_MOST_BYTES))
    return entries if isinstance(entries, dict) else {}


def _key(target: Target) -> str:
    where = target.broker or str(target.state_dir or os.environ.get("TIERCEL_STATE_DIR", ""))
    return f"{target.tenant} {where}"


def _path() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "tiercel" / "completion.json"


def _main() -> None:
    import asyncio

    from tiercel.core.locks import LockHeldError, take

    folder, broker, tenant = sys.argv[1:]
    target = Target(Path(folder) if folder else None, broker, tenant)
    lock = _path().with_suffix(".lock")
    lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        # However often the key is pressed, one process asks.
        with take(lock):
            keep(target, asyncio.run(_ask(target)))
    except LockHeldError:
        return


if __name__ == "__main__":
    _main()
