"""Control groups as folders: making, emptying and removing them."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

NODE_PREFIX: Final = "tiercel-"
CONTROL_SUFFIX: Final = "-control"
SERVING_SUFFIX: Final = "-serving"
RUN_PREFIX: Final = "run-"

TEMPLATES: Final = ".templates"
"""What the group of the templates has in place of a run's id; no run has such a one."""
TEMPLATES_WEIGHT: Final = 0.5
"""Of a node whose runs weigh 1: a third where they want all of it, for the seconds that imports take. At 0.2, templates
were ready three times as late, and the runs until then cold."""

ORDINARY_TRAINING_WEIGHT: Final = 1.0
"""The weight of all runs together, for each core of the node, where an ordinary process has 1."""

# Somebody waits for what agent, inference server and broker answer. At training's own weight, one that needs a core now
# and then waits for it ten times as long, and a starved controller reacts 30 times slower.
_CONTROL_PER_TRAINING: Final = 40.0

_EMPTYING_SECONDS: Final = 2.0
_EMPTYING_PAUSE_SECONDS: Final = 0.005


class LimitsUnavailableError(Exception):
    """This way of enforcing shares does not work here; the message says why."""


@dataclass(frozen=True, slots=True)
class GroupWeights:
    """What the groups of a node weigh, where an ordinary process has 1."""

    runs: float  # all training together
    # Each group of what answers: the agent, the inference server, and the broker where it runs on the same machine.
    control: float


def group_weights(cpu_cores: float, training_weight: float) -> GroupWeights:
    """The weights of a node's groups: training gives way to what answers, however it competes with everybody else."""
    return GroupWeights(training_weight * cpu_cores, training_weight * _CONTROL_PER_TRAINING)


class GroupFolders(Protocol):
    """Makes and removes control groups."""

    def make(self, folder: Path) -> None:
        """Make a group; one that exists already is fine."""

    def remove(self, folder: Path) -> None:
        """Remove a group without processes and children; one that does not exist is fine."""


class KernelGroups:
    """The kernel's own groups, where a folder fills itself with files and is removed with them."""

    def make(self, folder: Path) -> None:
        """See :class:`GroupFolders`."""
        folder.mkdir(exist_ok=True)

    def remove(self, folder: Path) -> None:
        """See :class:`GroupFolders`; a group whose last process is just leaving is tried again for a moment."""
        give_up_at = time.monotonic() + _EMPTYING_SECONDS
        while True:
            try:
                folder.rmdir()
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > give_up_at:
                    raise
                time.sleep(_EMPTYING_PAUSE_SECONDS)
            else:
                return


def without_own(group: str) -> str:
    """The group's path up to where a group of ours begins: an agent started inside of ours does not nest."""
    parts = group.strip("/").split("/")
    for index, part in enumerate(parts):
        if part.startswith(NODE_PREFIX):
            return "/".join(parts[:index])
    return "/".join(parts)


def pids(folder: Path) -> list[int]:
    """Processes in a group; none when it is gone."""
    try:
        return [int(line) for line in (folder / "cgroup.procs").read_text().split()]
    except (FileNotFoundError, OSError) as error:
        if isinstance(error, FileNotFoundError) or error.errno == errno.ENODEV:
            return []
        raise


def kill_all(folder: Path) -> None:
    """Kill every process in a group until none is left, for two seconds at most.

    Blocks: call it on a thread where processes may be many. A process that the kernel itself holds may survive.
    """
    give_up_at = time.monotonic() + _EMPTYING_SECONDS
    while (inside := pids(folder)) and time.monotonic() < give_up_at:
        for pid in inside:
            if pid == os.getpid():
                return  # never ourselves, whatever the files say
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(_EMPTYING_PAUSE_SECONDS)


def remove_runs(folder: Path, kept: Collection[str], folders: GroupFolders) -> None:
    """Kill what is in the groups of runs, and remove them; blocks for a moment."""
    for group in folder.glob(RUN_PREFIX + "*"):
        if group.name.removeprefix(RUN_PREFIX) not in kept:
            kill_all(group)
            folders.remove(group)


def read_counter(path: Path, key: str) -> int:
    """The number beside ``key`` in a file of "key number" lines; 0 where file or key is missing."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    return 0


def read_number(path: Path) -> int:
    """The number in a file; 0 where the file is missing."""
    try:
        return int(path.read_text())
    except OSError:
        return 0
