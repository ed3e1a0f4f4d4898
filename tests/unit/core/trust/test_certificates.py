"""Keys and certificates: what is read, what is refused, and when something is renewed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tiercel.broker.trust.authority import CERTIFICATE_LIFE, Authority
from tiercel.core.trust.certificates import (
    BROKER_NAME,
    MOST_PEM_BYTES,
    CertificateError,
    Identity,
    key_to_pem,
    look_seconds,
    make_key,
    make_request,
    node_of,
    node_uri,
    pin_of,
    read_chain,
    read_request,
    renewal_time,
    speaks_for_broker,
    to_pem,
)

NOW = datetime(2026, 11, 23, tzinfo=UTC)


def request_by(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    made = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM)


def test_an_identity_is_one_file_and_comes_back_from_it() -> None:
    authority, key = Authority.create(NOW), make_key()
    certificate = authority.issue_to_node("n1", key.public_key(), NOW)
    identity = Identity(key_to_pem(key), to_pem(certificate, authority.certificate))
    assert Identity.from_file(identity.to_file()) == identity
    assert identity.certificate == certificate
    for damaged in (b"", identity.key, identity.chain, identity.key + identity.chain[:100]):
        with pytest.raises(CertificateError):
            Identity.from_file(damaged)


def test_a_request_names_nobody_and_only_a_key_that_signed_it_is_read() -> None:
    key = make_key()
    pem = make_request(key)
    assert list(x509.load_pem_x509_csr(pem).subject) == []
    assert read_request(pem) == key.public_key()
    mixed = bytearray(x509.load_pem_x509_csr(pem).public_bytes(serialization.Encoding.DER))
    mixed[-1] ^= 1
    forged = x509.load_der_x509_csr(bytes(mixed)).public_bytes(serialization.Encoding.PEM)
    wrong = {
        forged: "not signed by the key",
        request_by(rsa.generate_private_key(65537, 2048)): "curve P-256",
        request_by(ec.generate_private_key(ec.SECP384R1())): "curve P-256",
        b"nothing": "no request",
        b"x" * (MOST_PEM_BYTES + 1): "at most",
    }
    for text, words in wrong.items():
        with pytest.raises(CertificateError, match=words):
            read_request(text)


def test_a_pin_stands_for_a_key_and_not_for_a_certificate() -> None:
    first = Authority.create(NOW)
    again = Authority.create(NOW)
    assert first.pin == pin_of(first.certificate) != again.pin
    assert len(first.pin) == 43
    renewed = first.issue_to_node("n1", first.key.public_key(), NOW)  # the same key in another certificate
    assert pin_of(renewed) == first.pin


@pytest.mark.parametrize("name", ["", "-n", "a b", "n/1", "x" * 64, "x" * 9999, "n1\n", "é"])
def test_what_is_no_name_of_a_node_gets_into_no_certificate(name: str) -> None:
    with pytest.raises(CertificateError, match=r"^.{2,66} is not a node's name"):
        node_uri(name)


def test_certificates_say_who_they_are_for_and_nothing_else() -> None:
    authority = Authority.create(NOW)
    node = authority.issue_to_node("n1", make_key().public_key(), NOW)
    broker = authority.issue_to_broker(["10.0.0.5", "lab.example"], NOW).certificate
    assert (node_of(node), speaks_for_broker(node)) == ("n1", False)
    tenant = authority.issue_to_tenant("alice", make_key().public_key(), NOW)
    assert (node_of(tenant), speaks_for_broker(tenant)) == ("", False)
    assert (node_of(broker), speaks_for_broker(broker)) == ("", True)
    assert (node_of(authority.certificate), speaks_for_broker(authority.certificate)) == ("", False)
    names = broker.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert names.critical
    assert names.value.get_values_for_type(x509.DNSName) == [BROKER_NAME, "lab.example"]
    assert [str(each) for each in names.value.get_values_for_type(x509.IPAddress)] == ["10.0.0.5"]


def test_a_certificate_is_renewed_after_two_thirds_of_its_life() -> None:
    certificate = Authority.create(NOW).issue_to_node("n1", make_key().public_key(), NOW)
    life = CERTIFICATE_LIFE
    moments = [renewal_time(certificate, jitter) for jitter in (0.0, 0.5, 1.0)]
    assert moments == sorted(moments)
    assert NOW + 0.6 * life < moments[0]
    assert moments[2] < NOW + 0.75 * life


@pytest.mark.parametrize(("life", "seconds"), [(timedelta(days=30), 600.0), (timedelta(minutes=5), 10.0)])
def test_one_that_is_good_for_minutes_is_looked_at_more_often(life: timedelta, seconds: float) -> None:
    assert look_seconds(life, 600.0) == seconds


def test_no_certificates_are_read_from_other_text() -> None:
    for text in (b"", b"-----BEGIN CERTIFICATE-----\n", b"x" * (MOST_PEM_BYTES + 1)):
        with pytest.raises(CertificateError):
            read_chain(text)
