"""What finds and installs packages: uv where there is one, else pip. Each is asked for a plan first, then does it.

The plan is made for the node's own interpreter, so that what is installed there counts: what is missing is planned, and
so is a package of the node that would have to be another version, which nobody lets happen.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from tiercel.core.uv_program import find_uv
from tiercel.trainer_agent.environments.index import PackageIndex

CACHE: Final = "cache"
_PLANNED: Final = re.compile(r"^ [+~] (\S+)==(\S+)", re.MULTILINE)
_VERSION_SECONDS: Final = 30.0


class Installer(Protocol):
    """A program that finds and installs packages."""

    @property
    def identity(self) -> str:
        """Its name and version."""

    def write_settings(self, folder: Path, index: PackageIndex) -> None:
        """Write down where packages come from, in a folder of its own."""

    def plan(self, python: str, folder: Path, requirements: Path) -> list[str]:
        """The command that says what is missing beside an interpreter."""

    def planned(self, output: str, folder: Path) -> list[tuple[str, str]]:
        """Names and versions, once that command has ended well; ``output`` is what it wrote."""

    def install(self, python: Path, folder: Path, pins: Path) -> list[str]:
        """The command that installs exactly what a file lists, for the interpreter of an environment."""


@dataclass(frozen=True, slots=True)
class Uv:
    """uv.

    Attributes:
        path: Of the program.
        identity: See :class:`Installer`.
    """

    path: str
    identity: str

    def write_settings(self, folder: Path, index: PackageIndex) -> None:
        """See :class:`Installer`."""
        _write_secret(folder / "uv.toml", index.uv_settings())

    def plan(self, python: str, folder: Path, requirements: Path) -> list[str]:
        """See :class:`Installer`."""
        # It changes nothing, so that a distribution's mark on its Python does not matter.
        options = ["--dry-run", "--break-system-packages", "--python", python, "--requirements", str(requirements)]
        return self._command(folder, *options)

    def planned(self, output: str, folder: Path) -> list[tuple[str, str]]:
        """See :class:`Installer`."""
        del folder
        return _PLANNED.findall(output)

    def install(self, python: Path, folder: Path, pins: Path) -> list[str]:
        """See :class:`Installer`; files are copied, as a link would let one environment change another."""
        options = ["--python", str(python), "--no-deps", "--link-mode", "copy", "--compile-bytecode"]
        return self._command(folder, *options, "--requirements", str(pins))

    def _command(self, folder: Path, *options: str) -> list[str]:
        # One of the build's own, which goes with it: uv bounds none, and none may vanish under another build.
        config = ["--config-file", str(folder / "uv.toml"), "--cache-dir", str(folder / CACHE), "--no-progress"]
        return [self.path, "pip", "install", *config, "--color", "never", "--no-python-downloads", *options]


@dataclass(frozen=True, slots=True)
class Pip:
    """pip, which sees the node's packages behind those of an environment.

    Attributes:
        identity: See :class:`Installer`.
    """

    identity: str

    def write_settings(self, folder: Path, index: PackageIndex) -> None:
        """See :class:`Installer`."""
        _write_secret(folder / "pip.conf", index.pip_settings())

    def plan(self, python: str, folder: Path, requirements: Path) -> list[str]:
        """See :class:`Installer`."""
        options = ["--dry-run", "--report", str(folder / "plan.json")]
        return self._command(python, *options, "--requirement", str(requirements))

    def planned(self, output: str, folder: Path) -> list[tuple[str, str]]:
        """See :class:`Installer`."""
        del output
        found = json.loads((folder / "plan.json").read_bytes())["install"]
        return [(each["metadata"]["name"], each["metadata"]["version"]) for each in found]

    def install(self, python: Path, folder: Path, pins: Path) -> list[str]:
        """See :class:`Installer`."""
        del folder
        return self._command(str(python), "--no-deps", "--requirement", str(pins))

    def _command(self, python: str, *options: str) -> list[str]:
        quiet = ["--no-input", "--disable-pip-version-check", "--no-cache-dir", "--progress-bar", "off", "--no-color"]
        return [python, "-m", "pip", "install", *quiet, *options]


@functools.lru_cache(maxsize=4)
def _version_of(uv: str, changed_at: int) -> str:
    """What uv calls itself; asked for again once it was replaced."""
    del changed_at
    done = subprocess.run([uv, "--version"], capture_output=True, text=True, timeout=_VERSION_SECONDS, check=True)
    return done.stdout.strip()


def find_installer() -> Installer | None:
    """uv, else pip; None where there is neither."""
    uv = find_uv()
    if uv is not None:
        try:
            return Uv(uv, _version_of(uv, Path(uv).stat().st_mtime_ns))
        except (OSError, subprocess.SubprocessError):
            pass
    try:
        return Pip(f"pip {importlib.metadata.version('pip')}")
    except importlib.metadata.PackageNotFoundError:
        return None


def pins_of(planned: Sequence[tuple[str, str]], requirements: Sequence[str]) -> str:
    """The file that lists exactly what is installed, with the hashes that the requirements give.

    Args:
        planned: Names and versions.
        requirements: What was asked for.
    """
    hashes = {_name(line): line[line.index(" --hash=") :] for line in requirements if " --hash=" in line}
    return "".join(f"{name}=={version}{hashes.get(_name(name), '')}\n" for name, version in planned)


def _name(line: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", line)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""


def _write_secret(path: Path, text: str) -> None:
    path.touch(mode=0o600)  # an index's address may say who asks there
    path.write_text(text)
