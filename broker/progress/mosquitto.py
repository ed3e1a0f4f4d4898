"""What a mosquitto of the operator's has to be told, so that it lets in and hides as the embedded server does. Pure."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import TYPE_CHECKING

from tiercel.broker.progress.topics import READABLE, ROOT
from tiercel.core.errors import wrong_field

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

CONFIGURATION = "tiercel.conf"
RULES = "acl_file"
PASSWORDS = "password_file"
BROKER_USER = "broker"
"""As whom the broker publishes; a name that no tenant can have."""

_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
# Tokens are random, and mosquitto computes this for each connection, on the thread that delivers messages.
_ITERATIONS = 1_000
_SALT_BYTES = 12
_LONGEST_PACKET_BYTES = 256 * 1024


def configuration(folder: Path) -> str:
    """The part of ``mosquitto.conf`` that says who may do what; where it listens is said elsewhere.

    Args:
        folder: Where the other files are; absolute.
    """
    return (
        "allow_anonymous false\n"
        f"password_file {folder / PASSWORDS}\n"
        f"acl_file {folder / RULES}\n"
        f"max_packet_size {_LONGEST_PACKET_BYTES}\n"
    )


def rules(broker_user: str = BROKER_USER) -> str:
    """Who reads and writes what: the same for tenants that come later."""
    readable = "".join(f"pattern read {topics.format(tenant='%u')}\n" for topics in READABLE)
    return f"{readable}\nuser {broker_user}\ntopic readwrite {ROOT}/#\n"


def passwords(by_user: Mapping[str, str], random_bytes: Callable[[int], bytes]) -> str:
    """Users with what their passwords are checked by, as ``mosquitto_passwd`` writes them.

    Args:
        by_user: Passwords.
        random_bytes: Makes salts.

    Raises:
        InvalidSpecError: A name cannot be written there, or a password is empty.
    """
    return "".join(_line(user, password, random_bytes(_SALT_BYTES)) for user, password in by_user.items())


def _line(user: str, password: str, salt: bytes) -> str:
    if not _USER.fullmatch(user):
        raise wrong_field(
            "mqtt_username", f"{user!r} is no user's name for mosquitto; use 1 to 63 of A-Z, a-z, 0-9, '.', '_' and '-'"
        )
    if not password:
        raise wrong_field("mqtt_password", f"user {user} has no password; set one")
    hashed = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS)
    # $7$ stands for PBKDF2 with SHA-512.
    return f"{user}:$7${_ITERATIONS}${_base64(salt)}${_base64(hashed)}\n"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
