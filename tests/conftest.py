"""What holds for every test."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

import tiercel  # noqa: F401 - before any test imports ONNX Runtime: it has that report nothing
from testing import needs
from tiercel.core.trust.versions import allow_only_tls13

# Before any test imports gRPC.
allow_only_tls13()

# No test depends on speed: the machine may be busy with anything. Examples are drawn anew in every run.
settings.register_profile("tiercel", deadline=None, max_examples=60)
settings.load_profile("tiercel")

# Before any test imports PyTorch. Where as many tests as there are cores, and more, run at a time, the threads of one
# operation wait for each other, and use CPU time while they do.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What a shell started in the background ignores Ctrl-C, and hands that down to the programs that are tested with it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)

# Just before the time-out of pyproject.toml, which only shows that the event loop was waiting, but not for what.
TELL_AFTER_SECONDS = 285.0


# What is collected stays: to look through it again and again while it grows takes a tenth of the time.
gc.disable()


def pytest_collection_finish() -> None:
    """From here on there is garbage."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Asynchronous tests that hang say what every task waits for; few tests wait for the container image to be made."""
    # It is made beside the first tests, which takes minutes: those that use it come behind all that is long.
    later = frozenset(item.path for item in items if item.get_closest_marker("docker"))
    places = [index for index, item in enumerate(items) if "integration" in item.path.parts]
    if later and places:
        end = places[-1] + 1
        moved = [item for item in items[:end] if item.path in later]
        items[:end] = [item for item in items[:end] if item.path not in later] + moved
    for item in items:
        if isinstance(item, pytest.Function) and asyncio.iscoroutinefunction(item.function):
            item.fixturenames.insert(0, "_tell_tasks_that_hang")


# What the files of these folders share would else be started on each worker: a product, a Python with PyTorch in it.
_ON_ONE_WORKER = ("/end_to_end/one_product/", "/integration/trainer_agent/trainer/")


class _SharingFilesOnOneWorker(LoadFileScheduling):  # type: ignore[misc] # it has no types
    """File by file, but the files of some folders together."""

    def _split_scope(self, nodeid: str) -> str:
        together = next((folder for folder in _ON_ONE_WORKER if folder in nodeid), "")
        return together or str(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Where tests are dealt out by their files."""
    return _SharingFilesOnOneWorker(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Note why tests were skipped, for the last line of ``make test``; see :mod:`testing.needs`."""
    reasons = [report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", ())]
    if reasons:
        needs.SKIPPED.parent.mkdir(exist_ok=True)
        with needs.SKIPPED.open("a") as file:
            file.writelines(f"{reason}\n" for reason in reasons)


@pytest.fixture
async def _tell_tasks_that_hang() -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    timer = threading.Timer(TELL_AFTER_SECONDS, loop.call_soon_threadsafe, (_print_tasks,))
    timer.daemon = True
    timer.start()
    yield
    timer.cancel()


def _print_tasks() -> None:
    for task in asyncio.all_tasks():
        task.print_stack(file=sys.stderr)
