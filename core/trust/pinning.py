"""Finds out whether whoever answers is to be believed.

With a pin, the certificates of the other end are looked at first, before anything is said to it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiercel.core.addresses import split_address
from tiercel.core.errors import InvalidSpecError, NotAuthenticatedError, UnavailableError
from tiercel.core.trust.certificates import (
    BROKER_NAME,
    CertificateError,
    is_issued_by,
    pin_of,
    read_chain,
    speaks_for_broker,
    to_pem,
)
from tiercel.core.trust.trust import AUTHORITY_VARIABLE, PIN_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography import x509

    from tiercel.core.trust.trust import Trust

_LOOK_SECONDS = 10.0
_PIN_CHARACTERS = 43
_MOST_CERTIFICATES = 8


@dataclass(frozen=True, slots=True)
class Believed:
    """What TLS needs to know."""

    roots: bytes  # certificates of the authorities, PEM
    name: str = ""  # the name that the other end must have, in place of the one that was dialled; empty for that one

    @property
    def channel_options(self) -> list[tuple[str, str | int]]:
        """The same for a gRPC channel."""
        return [("grpc.ssl_target_name_override", self.name)] if self.name else []


async def believe(address: str, trust: Trust) -> Believed:
    """Find out what TLS needs to know.

    Args:
        address: Whom to dial, ``host:port``.
        trust: Whom to believe; one of the two at least.

    Raises:
        InvalidSpecError: The file or the pin is of no use.
        UnavailableError: Nobody answers there, or nobody that speaks TLS 1.3.
        NotAuthenticatedError: Whoever answers is not vouched for by the key of the pin.
    """
    if trust.authority is None:
        return await asyncio.to_thread(_by_pin, address, trust.pin)
    try:
        roots = trust.authority.read_bytes()
        read_chain(roots)
    except (OSError, CertificateError) as error:
        raise InvalidSpecError(
            f"{AUTHORITY_VARIABLE}: {trust.authority} has no certificates ({error}); give the authority.pem of the "
            "broker's state directory",
            field="authority",
        ) from error
    return Believed(roots)


def _by_pin(address: str, pin: str) -> Believed:
    if len(pin) != _PIN_CHARACTERS:
        raise InvalidSpecError(
            f"{PIN_VARIABLE}: a pin has {_PIN_CHARACTERS} characters; 'pin' in the broker's addresses.json is it",
            field="pin",
        )
    chain = shown_by(address)
    authority = _vouching(chain, pin)
    if authority is None:
        raise NotAuthenticatedError(
            f"whoever answers at {address} does not belong to the broker that the pin stands for: the address is "
            "another broker's, or somebody stands between, or the broker's authority was rotated; nothing was sent. "
            "Ask the broker's operator for address and pin",
            field="pin",
        )
    return Believed(to_pem(authority), BROKER_NAME if speaks_for_broker(chain[0]) else "")


def _vouching(chain: Sequence[x509.Certificate], pin: str) -> x509.Certificate | None:
    """The certificate with the pin's key that vouches for the first of a chain, perhaps through others in it."""
    vouched, others = list(chain[:1]), list(chain[1:_MOST_CERTIFICATES])
    found: x509.Certificate | None = None
    for one in vouched:  # grows
        for issuer in [each for each in others if is_issued_by(one, each)]:
            others.remove(issuer)
            vouched.append(issuer)
            # Of two certificates for that key the one that needs no other is what TLS is best told.
            if pin_of(issuer) == pin and (found is None or is_issued_by(issuer, issuer)):
                found = issuer
    return found


def shown_by(address: str) -> list[x509.Certificate]:
    """The certificates that somebody shows, of whom nothing is believed yet; blocks.

    Raises:
        UnavailableError: Nobody answers there, or nobody that speaks TLS 1.3.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection(split_address(address), timeout=_LOOK_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=BROKER_NAME) as encrypted,
        ):
            # Python 3.13 has this in the open; before that the socket keeps it to itself.
            inner = getattr(encrypted, "_sslobj", encrypted)
            shown = encrypted if hasattr(encrypted, "get_unverified_chain") else inner
            found = [_der(each) for each in shown.get_unverified_chain()]
        return read_chain(b"".join(ssl.DER_cert_to_PEM_cert(each).encode() for each in found))
    except (OSError, ValueError, CertificateError) as error:
        raise UnavailableError(
            f"nobody at {address} answers by TLS 1.3 ({error}); is that the broker's address, and is the broker "
            "running there?"
        ) from error


def _der(certificate: object) -> bytes:
    import _ssl

    return certificate if isinstance(certificate, bytes) else certificate.public_bytes(_ssl.ENCODING_DER)  # type: ignore[attr-defined]
