"""Packages that a job asks for: lines of names and versions, as requirements.txt has them, and nothing else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tiercel.core.errors import wrong_field

if TYPE_CHECKING:
    from tiercel.core.jobs import JobSpec

MAX_REQUIREMENTS = 1000
MAX_REQUIREMENTS_BYTES = 64 * 1024

_VERSION = r"(?:===?|[<>!~]=|[<>])\s*[\w.*+!-]+"
_LINE = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"  # the name
    r"(?:\s*\[[A-Za-z0-9._,\s-]*\])?"  # extras
    rf"(?:\s*\(?\s*{_VERSION}(?:\s*,\s*{_VERSION})*\s*\)?)?"
    r"(?:\s*;(?:(?!--)[^#\\])*)?"  # a marker, without options behind it
    r"(?:\s+--hash=sha(?:256|384|512):[0-9a-f]+)*"
)


def validate_requirements(spec: JobSpec) -> None:
    """Check what a job asks for, as far as that can be known without looking for the packages.

    Raises:
        InvalidSpecError: There is too much, a line is no requirement, or the job runs nothing that they could be for.
    """
    lines = spec.requirements
    if not lines:
        return
    if not (spec.script or spec.module or spec.command):
        raise wrong_field(
            "requirements", "are for a Python program: say which by 'script', 'module' or 'command', or leave them out"
        )
    if len(lines) > MAX_REQUIREMENTS:
        raise wrong_field("requirements", f"has {len(lines)} lines; at most {MAX_REQUIREMENTS} are taken")
    size = sum(len(line.encode(errors="replace")) for line in lines)
    if size > MAX_REQUIREMENTS_BYTES:
        raise wrong_field(
            "requirements",
            f"has {size} bytes; at most {MAX_REQUIREMENTS_BYTES} are taken, so leave out comments and hashes",
        )
    for line in lines:
        validate_line(line)


def validate_line(line: str) -> None:
    """Check one line.

    Raises:
        InvalidSpecError: It is no requirement of a package by its name.
    """
    if not line.isprintable() or not _LINE.fullmatch(line):
        raise wrong_field(
            "requirements",
            f"{line[:100]!r} is not a package with its version, such as 'lightning>=2.5'; paths, addresses and options "
            "are not taken, as the operator of a node says where packages come from",
        )
