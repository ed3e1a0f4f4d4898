"""The file with the rules: JSON, written in one step by the agent. All functions block, for as long as that takes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tiercel.core import storage
from tiercel.core.endpoint_access import AccessTable, EndpointRule

_MAX_BYTES = 32 * 1024**2


class AccessFileError(Exception):
    """There is no such file, or it is damaged; says which, and what to do."""


def stamp_of(file: Path) -> tuple[int, int, int] | None:
    """What differs when the file is another one; None where there is none."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def read_rules(file: Path) -> tuple[EndpointRule, ...]:
    """The rules in the file.

    Raises:
        AccessFileError: There are none to be had.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise AccessFileError(f"{file} cannot be read ({error.strerror}); the agent writes it anew") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise AccessFileError(f"{file} is not a plain file; remove it, and the agent writes it anew")
    with os.fdopen(descriptor, "rb") as opened:
        try:
            content = opened.read(_MAX_BYTES + 1)
        except OSError as error:
            raise AccessFileError(f"{file} cannot be read ({error.strerror})") from error
    if len(content) > _MAX_BYTES:
        raise AccessFileError(f"{file} is over {_MAX_BYTES} bytes")
    try:
        rules = storage.from_json(AccessTable, content.decode()).endpoints
    except ValueError as error:
        raise AccessFileError(f"{file} is damaged ({error}); remove it, and the agent writes it anew") from error
    if any(not rule.tenant or not rule.endpoint for rule in rules):
        raise AccessFileError(f"{file} has a rule without a tenant or an endpoint")
    return rules
