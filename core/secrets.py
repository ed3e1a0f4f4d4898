"""Secrets of tenants: what is known of one, which is everything but its value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tiercel.core.errors import wrong_field
from tiercel.core.variables import validate_name

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_SECRETS_OF_A_JOB = 32
MAX_SECRETS_OF_A_TENANT = 100
MAX_VALUE_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret without its value."""

    name: str  # the name of the variable that holds it
    set_at: float  # when it was set last, seconds since the Unix epoch


@dataclass(frozen=True, slots=True)
class SealedSecret:
    """A secret as it is stored."""

    tenant: str  # its owner
    name: str  # see :class:`Secret`
    set_at: float  # see :class:`Secret`
    sealed: bytes = field(repr=False)  # its value, encrypted


def validate_secret(name: str, value: str) -> None:
    """Check a secret that is to be kept; no message says anything of the value but how long it is.

    Raises:
        InvalidSpecError: The name is not a variable's, or the value is none.
    """
    validate_name("name", name)
    size = len(value.encode(errors="replace"))
    if not value:
        raise wrong_field("value", f"of {name} is empty; give the secret itself")
    if size > MAX_VALUE_BYTES:
        raise wrong_field("value", f"of {name} has {size} bytes; at most {MAX_VALUE_BYTES} are taken")
    if "\0" in value:
        raise wrong_field("value", f"of {name} contains a NUL character, which no environment can carry")


def validate_secrets(names: tuple[str, ...], env: Mapping[str, str]) -> None:
    """Check the names of secrets that a job asks for.

    Raises:
        InvalidSpecError: There are too many, or one is not a variable's name, comes twice, or is in ``env`` too.
    """
    if len(names) > MAX_SECRETS_OF_A_JOB:
        raise wrong_field("secrets", f"has {len(names)} entries; at most {MAX_SECRETS_OF_A_JOB} are taken")
    for name in names:
        validate_name("secrets", name)
        if names.count(name) > 1:
            raise wrong_field("secrets", f"{name} comes twice; name it once")
        if name in env:
            raise wrong_field("secrets", f"{name} is in env as well; take it out of there, where everybody may read it")
