"""What a way of running a training script has to offer."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from tiercel.core.commands import is_python
from tiercel.core.shares import AcceleratorShare
from tiercel.trainer_agent.data.mounts import DataMount, variables
from tiercel.trainer_agent.disk.job_folder import WORK
from tiercel.trainer_agent.limits.contract import CpuShare, Usage
from tiercel.trainer_agent.runtimes import ranks

READ_BYTES = 1 << 16

CONTAINER_SCRATCH: Final = "/tiercel-scratch"
"""Where the scratch folder is in containers."""

CONTAINER_ENVIRONMENT: Final = "/tiercel-environment"
"""Where the environment is in containers."""


@dataclass(frozen=True, slots=True)
class Program:
    """What to run: a script of the job, a module, another program, or nothing: then it is an image's own command."""

    script: str = ""  # path of a file in the job's folder ``program/``, or empty
    module: str = ""  # dotted name, or empty
    arguments: tuple[str, ...] = ()  # command-line arguments
    command_line: tuple[str, ...] = ()  # what another program is started by, or empty

    @property
    def is_images(self) -> bool:
        """Whether it is an image's own command."""
        return not (self.script or self.module or self.command_line)

    def command(self, python: str, job_folder: str) -> list[str]:
        """The command line, or only the arguments of an image's own command."""
        if self.script:
            return [python, f"{job_folder}/program/{self.script}", *self.arguments]
        if self.module:
            return [python, "-m", self.module, *self.arguments]
        if self.command_line and is_python(self.command_line[0]):
            return [python, *self.command_line[1:], *self.arguments]
        return [*self.command_line, *self.arguments]


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything a runtime must know to start a run."""

    run_id: str  # unique name; letters, digits, ``-``, ``_`` and ``.``
    job_folder: Path  # the job's folder, prepared; all that the run is given
    program: Program  # what to run
    working_folder: str = WORK  # in which folder of the job's it begins
    image: str = ""  # container image, or empty for the runtime's default
    cpu_cores: float = 1.0  # cores it can use at the same time; sets thread counts
    memory_bytes: int = 0  # memory limit, 0 for none
    share: CpuShare = field(default_factory=lambda: CpuShare(1.0))  # its first share of the CPU
    # What it may use of accelerators, in the order in which it shall number them; it sees no others.
    accelerators: tuple[AcceleratorShare, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)  # what its job adds to its environment
    # The same, which are kept nowhere and shown to nobody.
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    python: str = ""  # the interpreter of its environment, by its path on this machine; empty for the runtime's own
    environment_key: str = ""  # key of that environment, by content, or empty
    environment_made: str = ""  # tells it from one of the same key that was removed, or empty
    search_path: str = ""  # where its image looks for programs, for a run with an environment; else empty
    data: tuple[DataMount, ...] = ()  # its data sets, which it may read
    scratch: Path | None = None  # its scratch folder, or None
    tenant: str = ""  # who owns it; empty where that is not known
    warm: bool = True  # whether it may be forked from a process that has imported what it imports
    ranks: int = 1  # as how many processes its program is started

    @property
    def threads(self) -> int:
        """Threads that compute, in each of its processes."""
        return max(1, math.ceil(self.cpu_cores) // self.ranks)

    def command(self, python: str, job_folder: str, *, signals: str) -> list[str]:
        """The command line, or only the arguments of an image's own command.

        Args:
            python: The interpreter's command.
            job_folder: Where the job's folder is for the program.
            signals: How its ranks hear of a signal to end: see :mod:`tiercel.trainer_agent.runtimes.ranks`.
        """
        command = self.program.command(python, job_folder)
        return command if self.ranks == 1 else ranks.command_of(self.ranks, signals, python, command)

    def environment(self, job_folder: str) -> dict[str, str]:
        """The variables that every run gets, whatever runs it; nothing of the agent's own.

        Args:
            job_folder: Where the job's folder is for the program.
        """
        threads = str(self.threads)
        # The first two a job may set otherwise.
        return {
            "LANG": "C.UTF-8",
            "PYTHONUNBUFFERED": "1",
            **self.variables,
            **self.secrets,
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            # Empty, not absent: what is absent would let a program see all that there are.
            "CUDA_VISIBLE_DEVICES": ",".join(share.id for share in self.accelerators),
            "HOME": f"{job_folder}/{WORK}",
            "MKL_NUM_THREADS": threads,
            "OMP_NUM_THREADS": threads,
            "ORT_DISABLE_TELEMETRY": "1",  # else importing ONNX Runtime before our library would report to its makers
            "TIERCEL_RUN_DIR": job_folder,
        }

    def places(self, *, in_container: bool) -> dict[str, str]:
        """The variables that say where its data sets and its scratch folder are."""
        found = variables(self.data, in_container=in_container)
        if self.scratch is not None:
            found["TIERCEL_SCRATCH"] = CONTAINER_SCRATCH if in_container else str(self.scratch)
        return found


OUT_OF_MEMORY = (
    "The run used more memory than its limit and was ended by the kernel; ask for more with resources: {memory: 8GiB}."
)
"""The reason of an exit for memory."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a run ended."""

    code: int  # its exit code, or -N when signal N ended it
    reason: str = ""  # plain words when the kernel ended it, e.g. for its memory limit; else empty


@dataclass(frozen=True, slots=True)
class Output:
    """Some of a run's standard output and error."""

    data: bytes  # the bytes
    position: str  # where it ends, as the runtime calls it; what comes behind it can be had by it


class RunHandle(Protocol):
    """A run that was started."""

    @property
    def description(self) -> str:
        """What it is, for logs: ``process 123`` or ``container abc``."""

    @property
    def note(self) -> str:
        """What its tenant should read about how it was started; empty for nothing."""

    @property
    def is_warm(self) -> bool:
        """Whether a process, or a container, that had imported what it imports waited for it."""

    @property
    def image_id(self) -> str:
        """Id of the image that it is a container of; empty where it is none, or nobody knows."""

    def output(self, position: str = "") -> AsyncIterator[Output]:
        """Its standard output and error as they come, until it has ended. To be read once, and to be read always.

        Args:
            position: Of the last that an earlier life of the agent has read, to have what comes behind it; empty for
                all.
        """

    async def wait(self) -> Exit:
        """Wait until it has ended, with everything it started."""

    async def stop(self, grace_seconds: float) -> None:
        """Ask it to end (SIGTERM), end it with all it started (SIGKILL) after a while, and return when it is gone.

        Doing it twice is harmless.

        Args:
            grace_seconds: How long it may take after it was asked.
        """

    async def apply_share(self, share: CpuShare) -> None:
        """Let ``share`` hold from now on; no effect on a run that has ended."""

    async def usage(self) -> Usage:
        """What it has used so far, the last that was known once it has ended; may take a second to answer."""

    def pids(self) -> list[int]:
        """Its processes that live now, as this machine numbers them; empty where that is not known. Quick."""

    async def close(self) -> None:
        """Give back all that it holds; ends it if need be. Doing it twice is harmless."""


class ImagePython(Protocol):
    """Asks the Python of images what it has, for environments to be built over it."""

    async def identify(self, image: str) -> str:
        """The id of an image, which no other content has.

        Args:
            image: Its name, or empty for the image of runs that name none.

        Raises:
            RunFailedError: It is not there, or not for this kind of machine; says what to do.
        """

    async def ask(self, image_id: str, program: str) -> bytes:
        """Have a short program run by the Python of an image; returns what it wrote, which nobody vouches for.

        Raises:
            RunFailedError: It does not run, fails, takes too long or writes too much; says what to do.
        """


class Runtime(Protocol):
    """A way of running training scripts."""

    @property
    def name(self) -> str:
        """``process`` or ``docker``."""

    @property
    def owner(self) -> tuple[int, int] | None:
        """User and group id that must own the job's folder, or None where it is the agent itself that runs things."""

    @property
    def image_python(self) -> ImagePython | None:
        """Of the images that runs are containers of; None where runs have the agent's own Python."""

    async def start(self, launch: Launch) -> RunHandle:
        """Start a run.

        Raises:
            RunFailedError: It cannot be started; says why and what to do.
        """

    async def adopt(self, launch: Launch) -> RunHandle | None:
        """Take over a run that an earlier life of the agent started, be it over or not.

        Its limits stay what they were set to last, wherever they can be found again.

        Returns:
            None if there is none to be found.

        Raises:
            RunFailedError: There is one that cannot be taken over; says why.
        """

    async def images(self) -> Sequence[str]:
        """Container images at hand, by name with tag; empty where there is no such thing."""

    async def remove_leftovers(self, kept: Collection[str]) -> None:
        """End what an earlier life of the agent started and nobody takes over.

        Raises:
            SetupError: Something cannot be ended; says what to do.
        """

    async def close(self) -> None:
        """Let go of the engine, if there is one. Runs must have been closed before."""
