"""The packages that a spec asks for, from the file that it names: requirements.txt, pyproject.toml or uv.lock."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

from tiercel.core.errors import wrong_field
from tiercel.core.requirements import validate_line
from tiercel.core.uv_program import find_uv

MAX_FILE_BYTES = 1024 * 1024
_EXPORT_SECONDS = 60.0
_COMMENT = re.compile(r"(^|\s)#.*$")


def read_requirements(path: Path) -> tuple[str, ...]:
    """The packages of a file, a line for each.

    Args:
        path: A requirements file of whatever name, ``pyproject.toml`` or ``uv.lock``.

    Raises:
        InvalidSpecError: It cannot be read, or asks for what is not taken; says what.
    """
    text = _text(path)
    if path.name == "uv.lock":
        lines = _lines(_exported(path))
    elif path.suffix == ".toml":
        lines = _dependencies(path, text)
    else:
        lines = _lines(text)
    for line in lines:
        validate_line(line)
    if not lines:
        raise wrong_field("requirements", f"{path} asks for no package; leave it out")
    return tuple(lines)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise wrong_field(
            "requirements", f"{path} cannot be read ({error.strerror}); give the path of a requirements file"
        ) from None
    if len(content) > MAX_FILE_BYTES:
        raise wrong_field("requirements", f"{path} has more than {MAX_FILE_BYTES} bytes; leave out comments and hashes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise wrong_field("requirements", f"{path} is not text in UTF-8") from None


def _lines(text: str) -> list[str]:
    """Requirements of a text in the form of requirements.txt, without comments."""
    joined = re.sub(r"\\\r?\n", " ", text)
    stripped = (" ".join(_COMMENT.sub("", line).split()) for line in joined.splitlines())
    return [line for line in stripped if line]


def _dependencies(path: Path, text: str) -> list[str]:
    try:
        project = tomllib.loads(text).get("project", {})
    except tomllib.TOMLDecodeError as error:
        raise wrong_field("requirements", f"{path} is not TOML: {error}") from None
    lines = project.get("dependencies") if isinstance(project, dict) else None
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise wrong_field(
            "requirements", f"{path} has no list of dependencies in [project]; add it, or name a requirements file"
        )
    return [" ".join(line.split()) for line in lines]


def _exported(path: Path) -> str:
    """What a lock pins, with markers, in uv's own words: it alone knows what a lock means."""
    uv = find_uv()
    if uv is None:
        raise wrong_field(
            "requirements",
            f"{path} is read by uv, which is not here; install tiercel[envs], or write the file with 'uv export "
            "--no-emit-project --output-file requirements.txt' and name that",
        )
    options = "--frozen --offline --no-dev --no-emit-project --no-hashes --no-header --no-annotate"
    command = [uv, "export", *options.split(), "--project", str(path.parent)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_EXPORT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise wrong_field("requirements", f"{path} cannot be read by uv: {error}") from None
    if done.returncode != 0:
        raise wrong_field("requirements", f"{path} cannot be read by uv: {' '.join(done.stderr.split())[-500:]}")
    return done.stdout
