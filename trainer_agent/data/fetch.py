"""Fetches one data set: a program of its own, so that no library and no server can hold up or harm the agent.

It is told what to fetch on its standard input, in one line, and tells what there is; then it waits for a word before
it copies, since the agent may have that version already. URLs are in no command line: they may hold signatures.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any, Final

from tiercel.trainer_agent.data.addresses import InternetOnly, elsewhere
from tiercel.trainer_agent.data.stores import OpenedFolder, Store, found_of
from tiercel.trainer_agent.data.transfer import FetchError, Found, Progress, Sink, hash_of_folder, tell

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
GO: Final = "go"


def main() -> int:
    """Fetch what standard input says. Returns the exit code."""
    line = sys.stdin.readline()
    if not line:  # the agent was gone before it could say what
        return 1
    order = json.loads(line)
    progress = Progress(order["limit_bytes"], lambda size: tell(bytes=size))
    guard = InternetOnly()
    resource.setrlimit(resource.RLIMIT_DATA, (order["memory_bytes"], order["memory_bytes"]))
    try:
        if order["url"].startswith(("http://", "https://")):
            asyncio.run(_fetch_web(order, progress))
        else:
            if not order["trusted"]:
                guard.install()
            _fetch_files(order, progress)
    except FetchError as caught:
        error = elsewhere(guard.refused) if guard.refused else caught
        tell(failed=error.message, again=error.again)
    except BrokenPipeError:
        return 1
    except OSError as error:
        tell(failed=f"the node cannot keep it ({error.strerror or error})", again=True)
    return 0


async def _fetch_web(order: dict[str, Any], progress: Progress) -> None:
    from tiercel.trainer_agent.data.web import Web  # it takes a tenth of a second, which nobody else needs

    web = Web(order["url"], is_trusted=bool(order["trusted"]), silence_seconds=order["silence_seconds"])
    async with web.opened() as (found, read):
        if not _is_wanted(found, progress):
            return
        with Sink(Path(order["folder"]) / found.name, progress) as sink:
            await read(sink.write)
    if found.size not in {-1, progress.size}:
        raise FetchError(f"{progress.size} bytes came of {found.size}", again=True)
    _tell_done(order, sink.sha256, progress.size, 1)


def _fetch_files(order: dict[str, Any], progress: Progress) -> None:
    url, trusted = order["url"], order["trusted"]
    source = OpenedFolder(url, trusted) if url.startswith("file:") else Store(url, is_trusted=bool(trusted))
    listed = source.listed()
    found = found_of(url, listed)
    if not _is_wanted(found, progress):
        return
    hashes: dict[str, str] = {}
    for file in listed:
        target = Path(order["folder"]) / (file.path or found.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        hashes[file.path] = source.copy(file, target, progress)
    if found_of(url, source.listed()) != found:
        raise FetchError("it changed while it was read", again=True)
    digest = hashes[""] if found.name else hash_of_folder(hashes)
    _tell_done(order, digest, progress.size, len(hashes))


def _is_wanted(found: Found, progress: Progress) -> bool:
    """Say what there is, and hear whether it is to be copied."""
    tell(found={"version": found.version, "size": found.size, "name": found.name})
    if sys.stdin.readline().strip() != GO:
        return False
    if found.size > progress.limit_bytes:
        raise FetchError(f"it has {found.size} bytes, more than the {progress.limit_bytes} that the node's cache holds")
    return True


def _tell_done(order: dict[str, Any], sha256: str, size: int, files: int) -> None:
    for folder, _, _ in os.walk(order["folder"]):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        os.fsync(descriptor)
        os.close(descriptor)
        os.chmod(folder, 0o755)  # noqa: PTH101, S103 - containers read it as somebody else
    tell(done={"sha256": sha256, "size": size, "files": files})


def _end_with_the_agent() -> None:
    """Have the kernel end this process when the agent dies; where it cannot, the first word to the agent does."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    _end_with_the_agent()
    sys.exit(main())
