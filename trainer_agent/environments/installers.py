"""What finds and installs packages: uv where there is one, else pip. Each is asked for a plan first, then does it.

The plan is made for an interpreter that sees what is there already: what is missing is planned, and so is a package
that would have to be another version than is there, which nobody lets happen.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from tiercel.core.uv_program import find_uv
from tiercel.trainer_agent.environments.index import PackageIndex
from tiercel.trainer_agent.environments.layers import Platform, Target

CACHE: Final = "cache"
_PLANNED: Final = re.compile(r"^ [+~] (\S+)==(\S+)", re.MULTILINE)
_VERSION_SECONDS: Final = 30.0
# The versions of glibc, 2.x, and of musl that uv has names for.
_UV_GLIBC: Final = (17, 28, *range(31, 41))
_UV_MUSL: Final = (1, 2)


class Installer(Protocol):
    """A program that finds and installs packages."""

    @property
    def identity(self) -> str:
        """Its name and version."""

    def write_settings(self, folder: Path, index: PackageIndex) -> None:
        """Write down where packages come from, in a folder of its own."""

    def cannot(self, platform: Platform | None) -> str:
        """Why it finds no packages for a platform, in a sentence without a full stop; empty where it does."""

    def plan(self, target: Target, folder: Path, requirements: Path) -> list[str]:
        """The command that says what is missing."""

    def planned(self, output: str, folder: Path) -> list[tuple[str, str]]:
        """Names and versions, once that command has ended well; ``output`` is what it wrote."""

    def install(self, target: Target, folder: Path, pins: Path) -> list[str]:
        """The command that installs exactly what a file lists, and compiles nothing of it."""


@dataclass(frozen=True, slots=True)
class Uv:
    """uv."""

    path: str  # of the program
    identity: str  # see :class:`Installer`

    def write_settings(self, folder: Path, index: PackageIndex) -> None:
        """See :class:`Installer`."""
        _write_secret(folder / "uv.toml", index.uv_settings())

    def cannot(self, platform: Platform | None) -> str:
        """See :class:`Installer`."""
        if platform is None or _uv_platform(platform):
            return ""
        return f"uv has no packages for {platform.libc} {'.'.join(map(str, platform.libc_version))}"

    def plan(self, target: Target, folder: Path, requirements: Path) -> list[str]:
        """See :class:`Installer`."""
        # It changes nothing, so that a distribution's mark on its Python does not matter.
        options = ["--dry-run", "--break-system-packages", "--requirements", str(requirements)]
        return self._command(target, folder, *options)

    def planned(self, output: str, folder: Path) -> list[tuple[str, str]]:
        """See :class:`Installer`."""
        del folder
        return _PLANNED.findall(output)

    def install(self, target: Target, folder: Path, pins: Path) -> list[str]:
        """See :class:`Installer`; files are copied, as a link would let one environment change another."""
        return self._command(target, folder, "--no-deps", "--link-mode", "copy", "--requirements", str(pins))

    def _command(self, target: Target, folder: Path, *options: str) -> list[str]:
        # One of the build's own, which goes with it: uv bounds none, and none may vanish under another build.
        config = ["--config-file", str(folder / "uv.toml"), "--cache-dir", str(folder / CACHE), "--no-progress"]
        command = [self.path, "pip", "install", *config, "--color", "never", "--no-python-downloads", *options]
        command += ["--python", target.python]
        if target.platform is None:
            return command
        other = ["--python-version", target.platform.python, "--python-platform", _uv_platform(target.platform)]
        return command + other


@dataclass(frozen=True, slots=True)
class Pip:
    """pip."""

    identity: str  # see :class:`Installer`

    def write_settings(self, folder: Path, index: PackageIndex) -> None:
        """See :class:`Installer`."""
        _write_secret(folder / "pip.conf", index.pip_settings())

    def cannot(self, platform: Platform | None) -> str:
        """See :class:`Installer`; it goes by the interpreter that it runs with, whatever it is told."""
        own = ".".join(map(str, sys.version_info[:2]))
        if platform is None or (platform.libc == "glibc" and platform.python.startswith(f"{own}.")):
            return ""
        return (
            f"pip, which is all that the node has, finds packages for Python {own} with glibc alone, and not for "
            f"{platform.python} with {platform.libc}; install tiercel[envs] on the node"
        )

    def plan(self, target: Target, folder: Path, requirements: Path) -> list[str]:
        """See :class:`Installer`."""
        options = ["--dry-run", "--report", str(folder / "plan.json")]
        return self._command(target, *options, "--requirement", str(requirements))

    def planned(self, output: str, folder: Path) -> list[tuple[str, str]]:
        """See :class:`Installer`."""
        del output
        found = json.loads((folder / "plan.json").read_bytes())["install"]
        return [(each["metadata"]["name"], each["metadata"]["version"]) for each in found]

    def install(self, target: Target, folder: Path, pins: Path) -> list[str]:
        """See :class:`Installer`."""
        del folder
        return self._command(target, "--no-deps", "--no-compile", "--requirement", str(pins))

    def _command(self, target: Target, *options: str) -> list[str]:
        quiet = ["--no-input", "--disable-pip-version-check", "--no-cache-dir", "--progress-bar", "off", "--no-color"]
        return [sys.executable, "-P", "-m", "pip", "--python", target.python, "install", *quiet, *options]


def _uv_platform(platform: Platform) -> str:
    """What uv calls a platform, an older one where it has no name for that very one; empty where it has none."""
    if platform.libc == "musl":
        return f"{platform.machine}-unknown-linux-musl" if platform.libc_version >= _UV_MUSL else ""
    known = [minor for minor in _UV_GLIBC if (2, minor) <= platform.libc_version]
    return f"{platform.machine}-manylinux_2_{known[-1]}" if known else ""


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
    """The file that lists exactly what is installed, with the hashes that the requirements give."""
    hashes = {_name(line): line[line.index(" --hash=") :] for line in requirements if " --hash=" in line}
    return "".join(f"{name}=={version}{hashes.get(_name(name), '')}\n" for name, version in planned)


def _name(line: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", line)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else ""


def _write_secret(path: Path, text: str) -> None:
    path.touch(mode=0o600)  # an index's address may say who asks there
    path.write_text(text)
