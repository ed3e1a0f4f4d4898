"""Why TLS did not believe whoever answered, for people: gRPC has it among words of OpenSSL's."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

_REFUSED = "CERTIFICATE_VERIFY_FAILED"
_BY_THE_CLOCK = {
    "certificate is not yet valid": "is not good yet",
    "certificate has expired": "has run out",
}


def clock_words(details: str, now: datetime | None = None) -> str:
    """What is wrong with the clocks, as the rest of a sentence that begins with a certificate; empty for nothing.

    Args:
        details: What gRPC says of a connection that did not come about.
        now: The time of this machine, where that shall be told; a log says it by itself.
    """
    if _REFUSED not in details:
        return ""
    found = [words for said, words in _BY_THE_CLOCK.items() if said in details]
    told = f" ({now:%Y-%m-%d %H:%M} UTC)" if now is not None else ""
    return f"{found[0]} by this machine's clock{told}; see which of the two clocks is wrong" if found else ""


def alert_words(details: str) -> str:
    """What the other end says of the certificate that it was shown, where clocks may be why; empty for nothing.

    Args:
        details: What OpenSSL says of its alert.
    """
    if "CERTIFICATE_EXPIRED" not in details:
        return ""
    return "by its clock, the certificate that it was shown has run out; 'tiercel status' names a clock that is wrong"


def is_unvouched(details: str) -> bool:
    """Whether nobody whom this end believes vouches for whoever answers."""
    return _REFUSED in details and not clock_words(details)
