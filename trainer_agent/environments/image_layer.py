"""What an image has, as its Python says it: nothing of that is believed without a look, since anybody makes images."""

from __future__ import annotations

import importlib.util
import json
import platform as own_platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from tiercel.core.errors import InvalidSpecError
from tiercel.core.requirements import validate_line
from tiercel.trainer_agent.environments import venvs
from tiercel.trainer_agent.environments.image_program import MARK
from tiercel.trainer_agent.environments.layers import Interpreter, Platform, Target, canonical
from tiercel.trainer_agent.errors import RunFailedError

_MOST_DISTRIBUTIONS: Final = 5000
_MOST_FOLDERS: Final = 16
_MOST_NEEDS: Final = 500
# A path that means itself wherever it is written: to a shell, to Python, as a line of a file.
_PATH: Final = re.compile(r"(?=.{1,500}\Z)(/(?!\.{1,2}(/|\Z))[A-Za-z0-9_.+@~-]+)+")
_PYTHON_VERSION: Final = re.compile(r"3\.([0-9]{1,2})\.[0-9]{1,3}")
_LIBC_VERSION: Final = re.compile(r"([0-9]{1,2})\.([0-9]{1,3})(\.[0-9]{1,3})?")
_WORD: Final = re.compile(r"[A-Za-z0-9_.+-]{1,100}")
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
_VERSION: Final = re.compile(
    r"(?i)(?=.{1,64}\Z)v?([0-9]+!)?[0-9]+(\.[0-9]+)*([-_.]?(a|b|c|rc|alpha|beta|pre|preview)[-_.]?[0-9]*)?"
    r"(-[0-9]+|[-_.]?(post|rev|r)[-_.]?[0-9]*)?([-_.]?dev[-_.]?[0-9]*)?(\+[a-z0-9]+([-_.][a-z0-9]+)*)?"
)
_MOST_CHARACTERS: Final = 300
_OLDEST_MINOR: Final = 8


@dataclass(frozen=True, slots=True)
class ImageDistribution:
    """A distribution of an image."""

    name: str  # as it is written there
    version: str  # of it
    requires: tuple[str, ...] = ()  # what it needs, as far as that is names and versions
    extras: tuple[str, ...] = ()  # its optional parts

    def metadata(self) -> str:
        """The same as packages say it."""
        lines = [f"Name: {self.name}", f"Version: {self.version}"]
        lines += [f"Requires-Dist: {each}" for each in self.requires]
        lines += [f"Provides-Extra: {each}" for each in self.extras]
        return "Metadata-Version: 2.1\n" + "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class ImageLayer:
    """What an image has; see :class:`~tiercel.trainer_agent.environments.layers.Layer`."""

    interpreter: Interpreter  # its Python, by its path in there
    abi: str  # what packages for it are built for
    magic: str  # tells what bytecode it reads
    platform: Platform  # what packages are chosen for
    folders: tuple[str, ...]  # where its packages are
    packages: Mapping[str, ImageDistribution]  # they, by canonical name
    inside: str  # where containers of it find the environment

    owner: ClassVar[str] = "its image"
    advice: ClassVar[str] = "ask for what goes with that version, or use an image that has the other"

    @property
    def distributions(self) -> Mapping[str, str]:
        """See the class."""
        return {name: each.version for name, each in self.packages.items()}

    @property
    def is_compiled_here(self) -> bool:
        """See the class."""
        return (self.interpreter.series, self.magic) == (venvs.THIS.series, importlib.util.MAGIC_NUMBER.hex())

    def identity(self) -> list[object]:
        """See the class."""
        platform = self.platform
        packages = [[each.name, each.version, each.requires, each.extras] for each in self.packages.values()]
        return [
            self.interpreter.path,
            [platform.python, self.abi, self.magic, platform.machine, platform.libc, platform.libc_version],
            self.folders,
            packages,
            self.inside,
        ]

    def plan_target(self, folder: Path) -> Target:
        """See the class: what it has is written down as if it were installed here, without its files."""
        venv = folder / "layer"
        venvs.make(venv, venvs.THIS)
        packages = venvs.packages_in(venv, venvs.THIS)
        for each in self.packages.values():
            info = packages / f"{each.name.replace('-', '_')}-{each.version}.dist-info"
            info.mkdir(exist_ok=True)
            (info / "METADATA").write_text(each.metadata())
        self.limit_installer(venv)
        return Target(str(venvs.python_in(venv)), self.platform)

    def limit_installer(self, venv: Path) -> None:
        """Let pip take no package for a C library that is newer than the image's: this is the file that it asks."""
        packages = venvs.packages_in(venv, venvs.THIS)
        (packages / "_manylinux.py").write_text(
            "def manylinux_compatible(major, minor, machine):\n"
            f"    return (major, minor) <= {self.platform.libc_version!r}\n"
        )


def layer_of(said: bytes, inside: str) -> ImageLayer:
    """What an image's Python said of itself.

    Raises:
        RunFailedError: That is no Python that an environment can be built for; says why.
    """
    try:
        found = json.loads(said.rpartition(MARK.encode())[2])
        minor = int(_matching(_PYTHON_VERSION, found["version"])[1])
        interpreter = Interpreter(_matching(_PATH, found["python"])[0], found["version"])
        implementation = _matching(_WORD, found["implementation"])[0]
        machine = _matching(_WORD, found["machine"])[0]
        libc, libc_version = _libc(*found["libc"])
        folders = tuple(_matching(_PATH, each)[0] for each in _bounded(found["folders"], _MOST_FOLDERS))
        packages = _packages(_bounded(found["distributions"], _MOST_DISTRIBUTIONS))
        abi, magic = _matching(_WORD, found["abi"] or "none")[0], _matching(_WORD, found["magic"])[0]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunFailedError(
            f"What the Python of its image says of itself is not understood ({str(error)[:200]!r}): packages cannot be "
            "built for it. Use another image, or leave out requirements and install them in the image."
        ) from None
    if implementation != "CPython" or minor < _OLDEST_MINOR:
        raise _unfit(f"is {implementation} {interpreter.version}, not a plain CPython from 3.{_OLDEST_MINOR} on")
    if machine != own_platform.machine():
        raise _unfit(f"is for {machine}, and this node is {own_platform.machine()}")
    platform = Platform(interpreter.version, machine, libc, libc_version)
    return ImageLayer(interpreter, abi, magic, platform, folders, packages, inside)


def _libc(name: Any, version: Any) -> tuple[str, tuple[int, int]]:
    if name not in {"glibc", "musl"}:
        raise ValueError("it has neither glibc nor musl")
    numbers = _matching(_LIBC_VERSION, version)
    return name, (int(numbers[1]), int(numbers[2]))


def _packages(found: Sequence[Any]) -> dict[str, ImageDistribution]:
    """What is a package; anything else is as good as not there."""
    packages: dict[str, ImageDistribution] = {}
    for each in found:
        try:
            name, version = _matching(_NAME, each[0])[0], _matching(_VERSION, each[1])[0]
            requires = tuple(filter(_is_requirement, _bounded(each[2] or [], _MOST_NEEDS)))
            extras = tuple(_matching(_NAME, extra)[0] for extra in _bounded(each[3] or [], _MOST_NEEDS))
        except (ValueError, KeyError, TypeError, IndexError):
            continue
        packages.setdefault(canonical(name), ImageDistribution(name, version, requires, extras))
    return dict(sorted(packages.items()))


def _is_requirement(line: Any) -> bool:
    """Whether a line is names and versions: one with an address would have this machine fetch what is there."""
    if not isinstance(line, str) or len(line) > _MOST_CHARACTERS or "  " in line:  # the pattern takes long for blanks
        return False
    try:
        validate_line(line)
    except InvalidSpecError:
        return False
    return True


def _matching(pattern: re.Pattern[str], value: Any) -> re.Match[str]:
    found = pattern.fullmatch(value)
    if found is None:
        raise ValueError(f"{value[:100]!r} is not what it could be")
    return found


def _bounded(values: Any, most: int) -> list[Any]:
    if not isinstance(values, list) or len(values) > most:
        raise ValueError(f"there is a list with more than {most} entries, or something else")
    return values


def _unfit(why: str) -> RunFailedError:
    return RunFailedError(
        f"The Python of its image {why}: packages cannot be built for it. Use another image, or leave out requirements "
        "and install them in the image."
    )
