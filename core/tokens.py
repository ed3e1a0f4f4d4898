"""The form of tokens that Tiercel makes, ``tcl_KIND_ID_SECRET_CHECKSUM``: drawn, read, and known again by a hash."""

from __future__ import annotations

import binascii
import hashlib
import re
import secrets
import string
from dataclasses import dataclass, field

# Letters and digits alone: a double click selects all of a token, and it needs no quotes anywhere.
_ALPHABET = string.digits + string.ascii_uppercase + string.ascii_lowercase
_SECRET_LENGTH = 43
"""Characters out of 62: 256 bits."""
_FORM = re.compile(
    r"tcl_(?P<kind>[a-z]{1,12})_(?P<id>[0-9a-f]{12})_(?P<secret>[0-9A-Za-z]{43})_(?P<checksum>[0-9a-f]{8})"
)
MAX_TOKEN_CHARACTERS = 4 + 12 + 1 + 12 + 1 + _SECRET_LENGTH + 1 + 8


@dataclass(frozen=True, slots=True)
class Token:
    """A token, with its secret."""

    kind: str  # what it is good for, such as ``key`` for an endpoint's; lower case letters, up to 12
    id: str  # names it; 12 hexadecimal digits, no secret
    secret: str = field(repr=False)  # what proves that its bearer was given it

    @classmethod
    def draw(cls, kind: str) -> Token:
        """A fresh token."""
        return cls(kind, secrets.token_hex(6), "".join(secrets.choice(_ALPHABET) for _ in range(_SECRET_LENGTH)))

    def to_text(self) -> str:
        """As it is given to people: with the secret."""
        body = f"tcl_{self.kind}_{self.id}_{self.secret}"
        return f"{body}_{_checksum(body)}"


def parse_token(text: str, kind: str) -> Token | None:
    """Read a token as somebody presents it; of another kind, cut or mistyped it is None."""
    if len(text) > MAX_TOKEN_CHARACTERS:
        return None
    found = _FORM.fullmatch(text)
    if found is None or found["kind"] != kind or found["checksum"] != _checksum(text[: found.end("secret")]):
        return None
    return Token(found["kind"], found["id"], found["secret"])


def hash_token(text: str) -> str:
    """SHA-256 of a whole token, hexadecimal: what is kept of it, enough to know it again and not to tell it."""
    return hashlib.sha256(text.encode()).hexdigest()


def _checksum(body: str) -> str:
    return f"{binascii.crc32(body.encode()):08x}"
