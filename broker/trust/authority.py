"""The broker's own authority: what a certificate says, for whom, and for how long. No files, no clock."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tiercel.core.trust.certificates import (
    BROKER_NAME,
    CertificateError,
    Identity,
    is_issued_by,
    key_to_pem,
    make_key,
    node_uri,
    pin_of,
    read_chain,
    read_key,
    tenant_uri,
    to_pem,
)
from tiercel.core.trust.names import node_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cryptography.hazmat.primitives.asymmetric import ec

AUTHORITY_LIFE = timedelta(days=3650)
CERTIFICATE_LIFE = timedelta(days=30)
TENANT_LIFE = timedelta(days=1)
CLOCK_TOLERANCE = timedelta(days=1)
"""How much the clock of another machine may be behind: one that takes local time for UTC may be so by 14 hours."""


@dataclass(frozen=True, slots=True)
class Authority:
    """A private key that vouches for one broker and its nodes.

    While it takes the place of an earlier one, both are believed. That one's key is not needed any more: it has signed
    the certificate that leads from it to this one.
    """

    key: ec.EllipticCurvePrivateKey  # never leaves the broker's state directory
    certificate: x509.Certificate  # what everybody may see
    # A certificate for the same key by the earlier authority; None where there is none.
    link: x509.Certificate | None = None
    earlier: x509.Certificate | None = None  # the certificate of the earlier authority; None where there is none

    @classmethod
    def create(cls, now: datetime) -> Authority:
        """A fresh one."""
        key = make_key()
        # One step is left for what will lead to the one that takes its place. By the rules (RFC 5280, 4.2.1.9) that is
        # none, as both have the same name; OpenSSL and gRPC know that, and others do not.
        return cls(key, _authority_certificate(key.public_key(), now, steps=1).sign(key, hashes.SHA256()))

    @classmethod
    def from_file(cls, content: bytes) -> Authority:
        """One that was kept.

        Raises:
            CertificateError: It is no key with certificates, or they do not belong together.
        """
        kept = Identity.from_file(content)
        return cls.from_pem(kept.key, kept.chain)

    @classmethod
    def from_pem(cls, key: bytes, certificates: bytes) -> Authority:
        """The same from its parts: the key, its certificate, and what leads to it from an earlier one.

        Raises:
            CertificateError: They are no key and certificates, or do not belong together.
        """
        found, *before = read_chain(certificates)
        private = read_key(key)
        if private.public_key() != found.public_key():
            raise CertificateError("the key is not the certificate's")
        if not before:
            return cls(private, found)
        if len(before) != 2 or pin_of(before[0]) != pin_of(found) or not is_issued_by(*before):
            raise CertificateError("what leads to it from the earlier authority is not whole")
        return cls(private, found, *before)

    def to_file(self) -> bytes:
        """All of it in one text, so that one step puts all in place; with the private key."""
        before = () if self.link is None or self.earlier is None else (self.link, self.earlier)
        return Identity(key_to_pem(self.key), to_pem(self.certificate, *before)).to_file()

    def successor(self, now: datetime) -> Authority:
        """A fresh one that takes this one's place; who believes this one alone believes what that one signs."""
        fresh = Authority.create(now)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        link = _authority_certificate(fresh.key.public_key(), now, steps=0).add_extension(issuer, critical=False)
        return Authority(fresh.key, fresh.certificate, link.sign(self.key, hashes.SHA256()), self.certificate)

    def alone(self) -> Authority:
        """The same, from when on the earlier one is not believed any more."""
        return Authority(self.key, self.certificate)

    @property
    def pin(self) -> str:
        """Stands for the key."""
        return pin_of(self.certificate)

    @property
    def roots(self) -> tuple[x509.Certificate, ...]:
        """Who is believed: this one first."""
        return (self.certificate,) if self.earlier is None else (self.certificate, self.earlier)

    @property
    def pins(self) -> tuple[str, ...]:
        """Stand for the keys of those who are believed, this one's first."""
        return tuple(pin_of(each) for each in self.roots)

    def chain_of(self, certificate: x509.Certificate) -> bytes:
        """A certificate by this authority with all that leads to whom others may believe, PEM."""
        if self.link is None or self.earlier is None:
            return to_pem(certificate, self.certificate)
        # In the order of the path from the earlier one: so it is found by whoever walks along it.
        return to_pem(certificate, self.link, self.earlier, self.certificate)

    def issue_to_broker(self, names: Iterable[str], now: datetime, life: timedelta = CERTIFICATE_LIFE) -> Identity:
        """A key and a certificate for the broker's own doors.

        Args:
            names: Addresses and names by which it is called, beside the one that it always has.
            now: The time.
            life: How long it is good for.
        """
        key = make_key()
        given = [_general_name(name) for name in dict.fromkeys((BROKER_NAME, *names))]
        certificate = self._issue(key.public_key(), given, [ExtendedKeyUsageOID.SERVER_AUTH], now, life)
        return Identity(key_to_pem(key), self.chain_of(certificate))

    def issue_to_node(
        self,
        node_id: str,
        key: ec.EllipticCurvePublicKey,
        now: datetime,
        listen_names: Sequence[str] = (),
        life: timedelta = CERTIFICATE_LIFE,
    ) -> x509.Certificate:
        """A certificate that says which node its bearer is, to the broker and to those who ask its models.

        Args:
            node_id: The node.
            key: Its public key.
            now: The time.
            listen_names: Names and addresses by which it may be asked as well.
            life: How long it is good for.

        Raises:
            CertificateError: It is not a node's name.
        """
        names = names_of_node(node_id, listen_names)
        return self._issue(key, names, [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH], now, life)

    def issue_to_tenant(self, tenant: str, key: ec.EllipticCurvePublicKey, now: datetime) -> x509.Certificate:
        """A certificate that says which tenant its bearer is; good for a day, since nobody takes it back."""
        name = x509.UniformResourceIdentifier(tenant_uri(tenant))
        return self._issue(key, [name], [ExtendedKeyUsageOID.CLIENT_AUTH], now, TENANT_LIFE)

    def _issue(
        self,
        key: ec.EllipticCurvePublicKey,
        names: Iterable[x509.GeneralName],
        purposes: Sequence[x509.ObjectIdentifier],
        now: datetime,
        life: timedelta,
    ) -> x509.Certificate:
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        return (
            _builder(now, life)
            .subject_name(x509.Name([]))
            .issuer_name(self.certificate.subject)
            .public_key(key)
            # Critical, as there is no other name in it.
            .add_extension(x509.SubjectAlternativeName(names), critical=True)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(issuer, critical=False)
            .sign(self.key, hashes.SHA256())
        )


def names_of_node(node_id: str, listen_names: Iterable[str]) -> x509.SubjectAlternativeName:
    """What a node's certificate calls it: who it is, and by which names and addresses it may be asked.

    Raises:
        CertificateError: It is not a node's name.
    """
    called = [_general_name(name) for name in dict.fromkeys((node_name(node_id), *listen_names))]
    return x509.SubjectAlternativeName([x509.UniformResourceIdentifier(node_uri(node_id)), *called])


def _authority_certificate(key: ec.EllipticCurvePublicKey, now: datetime, *, steps: int) -> x509.CertificateBuilder:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Tiercel authority")])
    return (
        _builder(now, AUTHORITY_LIFE)
        .subject_name(name)
        .issuer_name(name)
        .public_key(key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=steps), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _builder(now: datetime, life: timedelta) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().serial_number(x509.random_serial_number())
    # One that is good for less than that is not to be old from the beginning.
    return builder.not_valid_before(now - min(CLOCK_TOLERANCE, life)).not_valid_after(now + life)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
