"""Builds one environment: a folder that holds what the node lacks, and sees what the node has behind it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tiercel.trainer_agent.environments import folders
from tiercel.trainer_agent.environments.commands import CommandError, CommandLimits, LimitError, run
from tiercel.trainer_agent.environments.index import PackageIndex
from tiercel.trainer_agent.environments.installers import CACHE, Installer, pins_of
from tiercel.trainer_agent.environments.node_layer import NodeLayer, canonical

COMPLETE: Final = "complete.json"
# What says that packages do not fit each other, whenever it is tried; anything else may pass.
_FOR_GOOD: Final = ("No solution found", "ResolutionImpossible", "No matching distribution found", "no wheels with")
_MAY_PASS: Final = ("network was disabled", "Failed to fetch", "error sending request", "No space left", "timed out")


class BuildFailedError(Exception):
    """An environment cannot be built.

    Args:
        message: Why, in a sentence.
        for_good: Whether it fails as long as nobody changes what is asked for.
    """

    def __init__(self, message: str, *, for_good: bool) -> None:
        super().__init__(message)
        self.message = message
        self.for_good = for_good


@dataclass(frozen=True, slots=True)
class Build:
    """What to build.

    Attributes:
        folder: Of the environment, where it stays: it cannot be moved.
        requirements: What was asked for.
        layer: What the node has.
        index: Where packages come from.
        installer: What installs them.
    """

    folder: Path
    requirements: Sequence[str]
    layer: NodeLayer
    index: PackageIndex
    installer: Installer

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return python_of(self.folder)


def python_of(folder: Path) -> Path:
    """The interpreter of an environment."""
    return folder / "venv" / "bin" / "python"


def key_of(python: str) -> str:
    """The key of the environment that an interpreter is of: the name of its folder."""
    return Path(python).parents[2].name


def size_of(folder: Path) -> int:
    """What an environment has on the disk, as was measured when it was built."""
    try:
        return int(json.loads((folder / COMPLETE).read_bytes())["size_bytes"])
    except (ValueError, KeyError, TypeError):
        return folders.disk_bytes(folder)


async def build(wanted: Build, limits: CommandLimits, say: Callable[[str], None], held: int) -> None:
    """Build an environment; it counts only once its last file, ``complete.json``, is there.

    Args:
        wanted: What.
        limits: What it may take.
        say: Given each line that is written.
        held: See :func:`.commands.run`.

    Raises:
        BuildFailedError: It cannot be built.
        OSError: The disk does not take it.
    """
    folder = wanted.folder
    await asyncio.to_thread(_begin, wanted)

    async def step(command: Sequence[str]) -> str:
        return await run(command, folder, limits, say, held=held)

    try:
        plan = wanted.installer.plan(wanted.layer.python, folder, folder / "requirements.txt")
        planned = wanted.installer.planned(await step(plan), folder)
        _check_conflicts(planned, wanted.layer)
        # By the interpreter of the node, so that the environment has the very same one below it.
        await step([wanted.layer.python, "-I", "-m", "venv", "--without-pip", "--symlinks", str(folder / "venv")])
        await asyncio.to_thread(_add_layer, wanted)
        if planned:
            pins = folder / "pins.txt"
            pins.write_text(pins_of(planned, wanted.requirements))
            await step(wanted.installer.install(wanted.python, folder, pins))
    except CommandError as error:
        raise BuildFailedError(str(error), for_good=_is_for_good(str(error))) from None
    except LimitError as error:
        raise BuildFailedError(str(error), for_good=False) from None
    await asyncio.to_thread(_finish, folder, planned)


def _begin(wanted: Build) -> None:
    folders.remove(wanted.folder)
    wanted.folder.mkdir(parents=True, mode=0o700)
    (wanted.folder / "requirements.txt").write_text("".join(f"{line}\n" for line in wanted.requirements))
    wanted.installer.write_settings(wanted.folder, wanted.index)


def _check_conflicts(planned: Sequence[tuple[str, str]], layer: NodeLayer) -> None:
    for name, version in planned:
        present = layer.distributions.get(canonical(name))
        if present is not None:
            raise BuildFailedError(
                f"it leads to {name} {version}, and the node has {present}, which what runs there needs; ask for "
                "what goes with that version, or run the job in an image of its own",
                for_good=True,
            )


def _add_layer(wanted: Build) -> None:
    """Put the node's packages behind the environment's."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = wanted.folder / "venv" / "lib" / version / "site-packages"
    (packages / "tiercel-node.pth").write_text(wanted.layer.path_file())


def _finish(folder: Path, planned: Sequence[tuple[str, str]]) -> None:
    for name in ("uv.toml", "pip.conf"):
        (folder / name).unlink(missing_ok=True)
    folders.remove(folder / CACHE)
    folders.make_read_only(folder / "venv")
    told = {"packages": [list(each) for each in planned], "size_bytes": folders.disk_bytes(folder)}
    temporary = folder / f".{COMPLETE}"
    temporary.write_text(json.dumps(told))
    os.sync()  # else a machine that loses power might remember that it is complete, and not what is in it
    temporary.rename(folder / COMPLETE)


def _is_for_good(said: str) -> bool:
    return any(words in said for words in _FOR_GOOD) and not any(words in said for words in _MAY_PASS)
