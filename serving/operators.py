"""Operators: those who may change what the server does, by a token that the server and they read from a file.

Loading, unloading and shares are for operators; inference, health, metadata, statistics and metrics are for whoever
reaches the server. Without a token everybody who reaches it may operate it, which is why it listens on loopback, but
nobody may send it files.
"""

from __future__ import annotations

import hmac
import os
import stat
from pathlib import Path

from tiercel.core.errors import NotAllowedError, NotAuthenticatedError, SetupError

_LEAST_CHARACTERS = 16
_MAX_BYTES = 4096
_SCHEME = "bearer "


class Operators:
    """Knows operators by their token.

    Args:
        token: The token, or None where everybody may operate the server.
    """

    __slots__ = ("_token",)

    def __init__(self, token: str | None = None) -> None:
        self._token = None if token is None else token.encode()

    def knows(self, authorization: str | None) -> bool:
        """Whether the caller has shown that it is an operator, which takes a token that there is."""
        given = authorization or ""
        token = given[len(_SCHEME) :].strip() if given[: len(_SCHEME)].lower() == _SCHEME else ""
        return self._token is not None and hmac.compare_digest(token.encode(), self._token)

    def check(self, authorization: str | None) -> None:
        """Let an operator pass.

        Args:
            authorization: What the caller sent as REST's header or gRPC's metadata ``authorization``, or None.

        Raises:
            NotAuthenticatedError: There is a token, and the caller does not have it.
        """
        if self._token is not None and not self.knows(authorization):
            raise NotAuthenticatedError(
                "this is for operators: send 'authorization: Bearer TOKEN' with the token of the server's "
                "operator token file"
            )

    def check_files(self) -> None:
        """Let files be sent; who sends them was checked before.

        Raises:
            NotAllowedError: There is no token, so that anybody could send them.
        """
        if self._token is None:
            raise NotAllowedError(
                "models may be sent by operators only: start the server with --operator-token-file FILE, or put the "
                "version into the repository"
            )


def read_operators(path: Path | None) -> Operators:
    """Operators by the token in a file; everybody where there is no file. Blocks.

    Raises:
        SetupError: The file cannot be read, others than its owner can read it, or it holds no fit token.
    """
    if path is None:
        return Operators()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise SetupError(
            f"The operator token file {path} cannot be read: {error.strerror}. Make it, or give another "
            "--operator-token-file."
        ) from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077:
        os.close(descriptor)
        raise SetupError(
            f"The operator token file {path} must be a plain file that only its owner can read: chmod 600."
        )
    with os.fdopen(descriptor, "rb") as file:
        token = file.read(_MAX_BYTES).decode("ascii", "replace").strip()
    if len(token) < _LEAST_CHARACTERS or not (token.isascii() and token.isprintable()) or " " in token:
        raise SetupError(
            f"The operator token file {path} must hold one token of at least {_LEAST_CHARACTERS} letters and digits, "
            "such as 'openssl rand -hex 32' makes."
        )
    return Operators(token)
