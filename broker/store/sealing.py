"""Encrypts secrets with a key that is not in the database: whoever has only the one has nothing.

AES-256-GCM with a fresh nonce each time; tenant and name are authenticated as well, so that a value that is moved
to another row does not open.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tiercel.core.errors import InvalidSpecError, UnavailableError
from tiercel.core.private_files import write_private

if TYPE_CHECKING:
    from pathlib import Path

KEY_FILE: Final = "secrets.key"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


class Sealer:
    """Seals and opens values.

    Args:
        key: Of 32 bytes.
    """

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    @classmethod
    def open(cls, state_dir: Path) -> Self:
        """Read the key of a state directory, or make it.

        Args:
            state_dir: The broker's; exists.

        Raises:
            UnavailableError: It cannot be read or written, or is no key.
        """
        path = state_dir / KEY_FILE
        try:
            if not path.exists():
                write_private(path, os.urandom(_KEY_BYTES))
            if path.stat().st_mode & 0o077:
                path.chmod(0o600)
            key = path.read_bytes()
        except OSError as error:
            raise UnavailableError(f"the key of secrets {path} cannot be used ({error.strerror})") from error
        if len(key) != _KEY_BYTES:
            raise UnavailableError(
                f"{path} is not the key of secrets that it was; put back a copy, or remove it and set all secrets again"
            )
        return cls(key)

    def seal(self, tenant: str, name: str, value: str) -> bytes:
        """A value so that only this key opens it, and only as this secret."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, value.encode(), _about(tenant, name))

    def unseal(self, tenant: str, name: str, sealed: bytes) -> str:
        """The inverse of :meth:`seal`.

        Raises:
            InvalidSpecError: It was sealed with another key, or as another secret.
        """
        try:
            nonce, rest = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
            return self._cipher.decrypt(nonce, rest, _about(tenant, name)).decode()
        except (InvalidTag, ValueError):
            message = f"secrets: {name} cannot be opened with the key that the broker has now; set it again"
            raise InvalidSpecError(message, field="secrets") from None


def _about(tenant: str, name: str) -> bytes:
    return json.dumps([tenant, name]).encode()
