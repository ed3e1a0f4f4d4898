"""Builds one environment: a folder that holds what a layer lacks, and sees what the layer has behind it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tiercel.trainer_agent.environments import folders, venvs
from tiercel.trainer_agent.environments.commands import CommandError, CommandLimits, LimitError, run
from tiercel.trainer_agent.environments.index import PackageIndex
from tiercel.trainer_agent.environments.installers import CACHE, Installer, pins_of
from tiercel.trainer_agent.environments.layers import Layer, Target, canonical, path_file

COMPLETE: Final = "complete.json"
# What says that packages do not fit each other, whenever it is tried; anything else may pass.
_FOR_GOOD: Final = ("No solution found", "ResolutionImpossible", "No matching distribution found", "no wheels with")
# Without what is installed around it: no code of a package runs for this, other than what follows in the command.
_COMPILE: Final = "import compileall, sys; compileall.compile_dir(sys.argv[1], quiet=2)"
_MAY_PASS: Final = ("network was disabled", "Failed to fetch", "error sending request", "No space left", "timed out")


class BuildFailedError(Exception):
    """An environment cannot be built.

    Args:
        for_good: Whether it fails as long as nobody changes what is asked for.
    """

    def __init__(self, message: str, *, for_good: bool) -> None:
        super().__init__(message)
        self.message = message
        self.for_good = for_good


@dataclass(frozen=True, slots=True)
class Build:
    """What to build."""

    folder: Path  # of the environment, where it stays: it cannot be moved
    requirements: Sequence[str]  # what was asked for
    layer: Layer  # what it is built over
    index: PackageIndex  # where packages come from
    installer: Installer  # what installs them

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return python_of(self.folder)

    @property
    def venv(self) -> Path:
        """What programs see of it."""
        return self.folder / "venv"


def python_of(folder: Path) -> Path:
    """The interpreter of an environment."""
    return venvs.python_in(folder / "venv")


def key_of(python: str) -> str:
    """The key of the environment that an interpreter is of: the name of its folder."""
    return Path(python).parents[2].name


def made_of(python: str) -> str:
    """Tells the environment that an interpreter is of from one of the same key that was removed before.

    Raises:
        OSError: There is none.
    """
    found = Path(python).parents[1].stat()
    return f"{found.st_ino}-{found.st_ctime_ns}"


def size_of(folder: Path) -> int:
    """What an environment has on the disk, as was measured when it was built."""
    try:
        return int(json.loads((folder / COMPLETE).read_bytes())["size_bytes"])
    except (ValueError, KeyError, TypeError):
        return folders.disk_bytes(folder)


async def build(wanted: Build, limits: CommandLimits, say: Callable[[str], None], held: int) -> None:
    """Build an environment; it counts only once its last file, ``complete.json``, is there.

    Raises:
        BuildFailedError: It cannot be built.
        OSError: The disk does not take it.
    """
    folder, layer, installer = wanted.folder, wanted.layer, wanted.installer
    await asyncio.to_thread(_begin, wanted)

    async def step(command: Sequence[str]) -> str:
        return await run(command, folder, limits, say, held=held)

    try:
        target = await asyncio.to_thread(layer.plan_target, folder)
        plan = installer.plan(target, folder, folder / "requirements.txt")
        planned = installer.planned(await step(plan), folder)
        _check_conflicts(planned, layer)
        target = await asyncio.to_thread(_make_venv, wanted)
        if planned:
            pins = folder / "pins.txt"
            pins.write_text(pins_of(planned, wanted.requirements))
            await step(installer.install(target, folder, pins))
        await asyncio.to_thread(_put_over_layer, wanted)
        if layer.is_compiled_here:
            await step([sys.executable, "-I", "-S", "-c", _COMPILE, str(wanted.venv / "lib")])
        else:
            version = layer.interpreter.version
            say(f"not compiled, as {layer.owner} has Python {version}: each run compiles what it imports")
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


def _check_conflicts(planned: Sequence[tuple[str, str]], layer: Layer) -> None:
    for name, version in planned:
        present = layer.distributions.get(canonical(name))
        if present is not None:
            raise BuildFailedError(
                f"it leads to {name} {version}, and {layer.owner} has {present}, which what runs there needs; "
                f"{layer.advice}",
                for_good=True,
            )


def _make_venv(wanted: Build) -> Target:
    """Make an environment of the agent's Python, whatever Python it is for in the end: the installer runs with that."""
    venvs.make(wanted.venv, venvs.THIS)
    wanted.layer.limit_installer(wanted.venv)
    return Target(str(wanted.python), wanted.layer.platform)


def _put_over_layer(wanted: Build) -> None:
    """Put what the layer has behind the environment's packages, and let its Python run them."""
    layer = wanted.layer
    packages = venvs.packages_in(wanted.venv, venvs.THIS)
    (packages / "_manylinux.py").unlink(missing_ok=True)
    (packages / "tiercel-layer.pth").write_text(path_file(layer.folders))
    if layer.inside:
        venvs.move_to(wanted.venv, layer.interpreter, layer.inside)


def _finish(folder: Path, planned: Sequence[tuple[str, str]]) -> None:
    for name in ("uv.toml", "pip.conf"):
        (folder / name).unlink(missing_ok=True)
    for name in (CACHE, "layer"):
        folders.remove(folder / name)
    folders.make_read_only(folder / "venv")
    told = {"packages": [list(each) for each in planned], "size_bytes": folders.disk_bytes(folder)}
    temporary = folder / f".{COMPLETE}"
    temporary.write_text(json.dumps(told))
    os.sync()  # else a machine that loses power might remember that it is complete, and not what is in it
    temporary.rename(folder / COMPLETE)


def _is_for_good(said: str) -> bool:
    return any(words in said for words in _FOR_GOOD) and not any(words in said for words in _MAY_PASS)
