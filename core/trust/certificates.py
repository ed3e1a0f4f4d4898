"""Keys and certificates as both ends see them: how they are made, written, named and renewed.

Elliptic curve P-256 throughout, since gRPC and browsers refuse others that are as good.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tiercel.core.trust.names import NODE_ID, NODE_URI, TENANT_URI, node_in, node_name, wrong_node_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

BROKER_NAME = "broker.tiercel.internal"
"""A name that every certificate of a broker by its own authority has, wherever the broker listens."""
MOST_PEM_BYTES = 64 * 1024
"""The largest certificate, request or chain that is looked at."""
_RENEWED_AFTER = 2 / 3
# All nodes that joined on the same day must not ask at the same moment.
_SPREAD = 0.1
# How often a certificate is looked at in its life, at least.
_LOOKS = 30


class CertificateError(Exception):
    """What was given is no certificate, request or key that can be used; says why."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A key and the certificates that say whose it is."""

    key: bytes  # the private key, PEM
    chain: bytes  # its certificate and the authority's, PEM

    @property
    def certificate(self) -> x509.Certificate:
        """Its own certificate, the first of the chain."""
        return read_chain(self.chain)[0]

    def to_file(self) -> bytes:
        """Both in one text, so that one step puts both in place."""
        return self.key + self.chain

    @classmethod
    def from_file(cls, content: bytes) -> Identity:
        """What :meth:`to_file` wrote.

        Raises:
            CertificateError: It is something else.
        """
        key, end, chain = content.partition(b"-----END PRIVATE KEY-----\n")
        read_chain(chain)
        return cls(key + end, chain)


def node_uri(node_id: str) -> str:
    """How a node's certificate calls it.

    Raises:
        CertificateError: It is not a node's name.
    """
    if not NODE_ID.fullmatch(node_id):
        raise CertificateError(wrong_node_id(node_id))
    return NODE_URI + node_id


def tenant_uri(tenant: str) -> str:
    """How a tenant's certificate calls it."""
    return TENANT_URI + tenant


def node_of(certificate: x509.Certificate) -> str:
    """The node that a certificate speaks for; empty for none."""
    names = names_in(certificate)
    return node_in(names.get_values_for_type(x509.UniformResourceIdentifier)) if names is not None else ""


def listen_names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """The names by which a node's certificate lets others call it, beside the one that it always has."""
    names, own = names_in(certificate), node_name(node_of(certificate))
    return tuple(name for name in names.get_values_for_type(x509.DNSName) if name != own) if names is not None else ()


def speaks_for_broker(certificate: x509.Certificate) -> bool:
    """Whether the certificate has the name that a broker's own authority gives its broker."""
    names = names_in(certificate)
    return names is not None and BROKER_NAME in names.get_values_for_type(x509.DNSName)


def names_in(certificate: x509.Certificate) -> x509.SubjectAlternativeName | None:
    """The names that a certificate has; None where it has none."""
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return None


def make_key() -> ec.EllipticCurvePrivateKey:
    """A fresh private key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_to_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as text."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def read_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """What :func:`key_to_pem` wrote.

    Raises:
        CertificateError: It is something else.
    """
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:
        raise CertificateError(f"there is no private key in it ({error})") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError("the private key is not of an elliptic curve")
    return key


def make_request(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Asks for a certificate for this key, PEM; it names nobody, since whoever signs decides whose it is."""
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def read_request(pem: bytes) -> ec.EllipticCurvePublicKey:
    """The public key that a certificate is asked for.

    Raises:
        CertificateError: It is no request, not signed by its own key, or its key is of another kind.
    """
    if len(pem) > MOST_PEM_BYTES:
        raise CertificateError(f"a request for a certificate has at most {MOST_PEM_BYTES} bytes")
    try:
        request = x509.load_pem_x509_csr(pem)
        key, is_signed = request.public_key(), request.is_signature_valid
    except Exception as error:  # the library raises a dozen kinds, and the text is anybody's
        raise CertificateError(f"this is no request for a certificate ({error})") from error
    if not (isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)):
        raise CertificateError("the key is not of the curve P-256; make one of that kind")
    if not is_signed:
        raise CertificateError("the request is not signed by the key that it names")
    return key


def read_chain(pem: bytes) -> list[x509.Certificate]:
    """The certificates of a text, one at least.

    Raises:
        CertificateError: There are none.
    """
    try:
        if len(pem) > MOST_PEM_BYTES:
            raise CertificateError(f"certificates have at most {MOST_PEM_BYTES} bytes")
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise CertificateError(f"these are no certificates ({error})") from error


def to_pem(*certificates: x509.Certificate) -> bytes:
    """Certificates as text, in this order."""
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)


def is_issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    """Whether the key of ``issuer`` signed a certificate."""
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def authorities_in(chain: Sequence[x509.Certificate]) -> list[x509.Certificate]:
    """The certificates of a chain that vouch for themselves: whom its bearer believes. Others only lead to them.

    Raises:
        CertificateError: There are none.
    """
    found = [each for each in chain[1:] if is_issued_by(each, each)]
    if not found:
        raise CertificateError("the authority's certificate is missing")
    return found


def pin_of(certificate: x509.Certificate) -> str:
    """43 characters that stand for the certificate's public key, however often it is issued anew."""
    spki = certificate.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return base64.urlsafe_b64encode(hashlib.sha256(spki).digest()).decode().rstrip("=")


def renewal_time(certificate: x509.Certificate, jitter: float = 0.5) -> datetime:
    """When a certificate is to be replaced: after two thirds of its life.

    Args:
        certificate: The one there is.
        jitter: In [0, 1]; moves the moment by up to a tenth of the life.
    """
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return begin + (end - begin) * (_RENEWED_AFTER + _SPREAD * (jitter - 0.5))


def shown_for(certificate: x509.Certificate) -> timedelta:
    """For how long a certificate is shown that came just now, whatever this machine's clock says of its dates.

    It may begin as long ago as it is good for, for those whose clocks are behind: two thirds of what is left at least.
    """
    return (certificate.not_valid_after_utc - certificate.not_valid_before_utc) / 2 * _RENEWED_AFTER


def look_seconds(certificate_life: timedelta, longest_seconds: float) -> float:
    """How long a certificate may be left alone: one that is good for minutes must not run out in between."""
    return min(longest_seconds, certificate_life.total_seconds() / _LOOKS)


def is_due(certificate: x509.Certificate, now: datetime) -> bool:
    """Whether one's own certificate is to be replaced: it is old, or was issued by a clock that was far ahead."""
    return now < certificate.not_valid_before_utc or now >= renewal_time(certificate)
