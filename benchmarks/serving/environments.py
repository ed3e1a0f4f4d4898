"""Python environments of the peers: one each, with exact versions, so that none bends another's dependencies."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

BUILD = Path("build/serving-peers")
PINS = Path(__file__).parent / "peers" / "pins"
INSTALL_SECONDS = 1200.0
_MARK = ".pins"


class UnavailableError(Exception):
    """A peer cannot be measured here; the message says why."""


def python_of(name: str, build: Path = BUILD) -> Path:
    """The interpreter of a peer's environment, whether or not it is there."""
    return (build / name / ".venv" / "bin" / "python").absolute()


def is_installed(name: str, build: Path = BUILD) -> bool:
    """Whether a peer's environment has what its pins say."""
    mark = build / name / _MARK
    return mark.exists() and mark.read_text(encoding="utf-8") == _digest(name) and python_of(name, build).exists()


def install(name: str, build: Path = BUILD) -> Path:
    """Make a peer's environment unless it is there already; returns its interpreter.

    Raises:
        UnavailableError: pip could not; the last line that it wrote is the reason.
    """
    python = python_of(name, build)
    if is_installed(name, build):
        return python
    if not python.exists():
        venv.create(python.parents[1], with_pip=True)
    pins = PINS / f"{name}.txt"
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(pins)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False, preexec_fn=_be_nice
        )
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"pip took more than {INSTALL_SECONDS:.0f} s") from None
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise UnavailableError(f"pip: {lines[-1][:200] if lines else 'it said nothing'}")
    (build / name / _MARK).write_text(_digest(name), encoding="utf-8")
    return python


def version_in(name: str, distribution: str) -> str:
    """The version that a peer's pins name.

    Raises:
        UnavailableError: They name none.
    """
    for line in (PINS / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        found, separator, version = line.partition("==")
        if separator and found.lower() == distribution.lower():
            return version.strip()
    raise UnavailableError(f"the pins of {name} do not name {distribution}")


def _digest(name: str) -> str:
    content = (PINS / f"{name}.txt").read_bytes()
    return hashlib.sha256(content + sys.version.encode()).hexdigest()


def _be_nice() -> None:
    os.nice(19)
