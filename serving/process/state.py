"""The lock that says a server lives, and the file that says where it listens."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from tiercel.core.errors import SetupError
from tiercel.core.locks import Lock, LockHeldError, take


def take_lock(path: Path) -> Lock:
    """Take the lock of a server.

    Raises:
        SetupError: Another server holds it, or the file cannot be opened.
    """
    try:
        return take(path)
    except LockHeldError as error:
        raise SetupError(
            f"Another inference server{f' (pid {error.pid})' if error.pid else ''} holds {path}. "
            "Use that one, end it, or give another --lock-file."
        ) from None
    except OSError as error:
        raise SetupError(
            f"The lock file {path} cannot be opened: {error.strerror}. Give another --lock-file."
        ) from error


def write_state(path: Path, addresses: Mapping[str, str]) -> None:
    """Write pid and addresses, at once or not at all.

    Args:
        path: The file.
        addresses: Where what answers, ``host:port``: ``http``, ``grpc``, and of encrypted doors ``https``, ``grpcs``.

    Raises:
        SetupError: The file cannot be written.
    """
    content = json.dumps({"pid": os.getpid(), **addresses})
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(content + "\n")
        temporary.replace(path)
    except OSError as error:
        raise SetupError(
            f"The state file {path} cannot be written: {error.strerror}. Give another --state-file."
        ) from error
