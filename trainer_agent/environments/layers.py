"""What environments are built over: a Python with its packages, the node's own or an image's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

_SEPARATORS: Final = re.compile(r"[-_.]+")


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python."""

    path: str  # of the program itself, not of a link to it
    version: str  # with all its numbers, e.g. ``3.11.7``

    @property
    def series(self) -> str:
        """The version that its folders are named after, e.g. ``3.11``."""
        return ".".join(self.version.split(".")[:2])


@dataclass(frozen=True, slots=True)
class Platform:
    """What packages are chosen for where they do not run beside their installer."""

    python: str  # the version of the interpreter, with all its numbers
    machine: str  # E.g. ``x86_64``
    libc: str  # ``glibc`` or ``musl``
    libc_version: tuple[int, int]  # its first two numbers


@dataclass(frozen=True, slots=True)
class Target:
    """For what an installer plans and installs."""

    python: str  # an interpreter of this machine: what it sees is there already, and beside it packages are put
    platform: Platform | None = None  # what they are chosen for, or None for that interpreter


class Layer(Protocol):
    """What an environment is built over."""

    @property
    def owner(self) -> str:
        """Whose it is, for people."""

    @property
    def advice(self) -> str:
        """What whoever asks for something else than it has may do instead."""

    @property
    def interpreter(self) -> Interpreter:
        """What programs of the environment run with."""

    @property
    def folders(self) -> Sequence[str]:
        """Where its packages are for these programs."""

    @property
    def distributions(self) -> Mapping[str, str]:
        """Their versions, by canonical name."""

    @property
    def platform(self) -> Platform | None:
        """What packages are chosen for, or None for this machine and the agent's own Python."""

    @property
    def inside(self) -> str:
        """Where programs find the environment; empty for where it is."""

    @property
    def is_compiled_here(self) -> bool:
        """Whether the agent's Python compiles for it."""

    def identity(self) -> list[object]:
        """What tells it from another one."""

    def plan_target(self, folder: Path) -> Target:
        """For what is planned what is missing.

        Raises:
            OSError: The disk does not take them.
        """

    def limit_installer(self, venv: Path) -> None:
        """Have an installer that runs in an environment of the agent's Python heed the platform.

        Raises:
            OSError: The disk does not take it.
        """


def canonical(name: str) -> str:
    """The name of a distribution as packages compare it."""
    return _SEPARATORS.sub("-", name).lower()


def path_file(folders: Sequence[str]) -> str:
    """A ``.pth`` file that puts folders behind the packages of an environment, with their own such files.

    A line with a path alone would leave those out, and with them packages that are installed in place.
    """
    return "".join(f"import site; site.addsitedir({folder!r})\n" for folder in folders)
