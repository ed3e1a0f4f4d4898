"""The token by which a machine joins: which broker it may believe, and a secret that works once."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from dataclasses import dataclass, field

from tiercel.core.errors import InvalidSpecError

_PREFIX = "tj1"
_TOKEN = re.compile(
    rf"{_PREFIX}\.(?P<pin>[A-Za-z0-9_-]{{43}})\.(?P<id>[0-9a-f]{{16}})\.(?P<secret>[A-Za-z0-9_-]{{43}})"
)


@dataclass(frozen=True, slots=True)
class JoinToken:
    """A join token."""

    pin: str  # of the authority that vouches for the broker
    id: str  # names the token; no secret
    secret: str = field(repr=False)  # what proves that its bearer was given it

    @classmethod
    def draw(cls, pin: str) -> JoinToken:
        """A fresh token."""
        secret = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode().rstrip("=")
        return cls(pin, secrets.token_hex(8), secret)

    @classmethod
    def parse(cls, text: str) -> JoinToken:
        """A token as somebody wrote it.

        Raises:
            InvalidSpecError: It is none; what was written is not repeated.
        """
        found = _TOKEN.fullmatch(text.strip())
        if found is None:
            raise InvalidSpecError(
                "token: this is no join token; copy the whole line that 'tiercel node token' printed", field="token"
            )
        return cls(found["pin"], found["id"], found["secret"])

    def to_text(self) -> str:
        """As it is given to people: with the secret."""
        return f"{_PREFIX}.{self.pin}.{self.id}.{self.secret}"


def digest_of(secret: str) -> str:
    """What a broker keeps of a token's secret: enough to know it again, and not to tell it."""
    return hashlib.sha256(secret.encode()).hexdigest()
