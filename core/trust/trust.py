"""Whom a client believes on the other end: an authority by its file, or by the pin of its key."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tiercel.core.addresses import split_address

if TYPE_CHECKING:
    from collections.abc import Mapping

AUTHORITY_VARIABLE = "TIERCEL_BROKER_CA"
PIN_VARIABLE = "TIERCEL_BROKER_PIN"


@dataclass(frozen=True, slots=True)
class Trust:
    """Whom to believe."""

    authority: Path | None = None  # file with the certificates of authorities, PEM; None for none
    # Of an authority's key, as ``tiercel up --listen`` says it; empty for none. One of the two is enough, and the file
    # comes first.
    pin: str = ""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Trust:
        """What the variables ``TIERCEL_BROKER_CA`` and ``TIERCEL_BROKER_PIN`` say."""
        path = environment.get(AUTHORITY_VARIABLE, "")
        return cls(Path(path) if path else None, environment.get(PIN_VARIABLE, ""))

    def __bool__(self) -> bool:
        return self.authority is not None or bool(self.pin)


def is_loopback(address: str) -> bool:
    """Whether an address, ``host:port``, is of this machine alone."""
    try:
        host, _ = split_address(address)
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
