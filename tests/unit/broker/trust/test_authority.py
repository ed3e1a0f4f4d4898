"""What the broker's own authority signs: checked by another implementation of the rules, at the times that matter."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from tiercel.broker.trust.authority import AUTHORITY_LIFE, CERTIFICATE_LIFE, CLOCK_TOLERANCE, TENANT_LIFE, Authority
from tiercel.core.trust.certificates import (
    BROKER_NAME,
    CertificateError,
    is_due,
    key_to_pem,
    listen_names_of,
    make_key,
    read_chain,
    to_pem,
)
from tiercel.core.trust.names import node_name

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def verify(authority: Authority, certificate: x509.Certificate, at: datetime, name: str = BROKER_NAME) -> None:
    policy = PolicyBuilder().store(Store([authority.certificate])).time(at)
    policy.build_server_verifier(x509.DNSName(name)).verify(certificate, [])


def test_the_brokers_certificate_is_good_for_its_life_and_for_clocks_that_are_behind() -> None:
    authority = Authority.create(NOW)
    identity = authority.issue_to_broker([], NOW)
    leaf, root = read_chain(identity.chain)
    assert root == authority.certificate
    for moment in (NOW - CLOCK_TOLERANCE, NOW, NOW + CERTIFICATE_LIFE):
        verify(authority, leaf, moment)
    for moment in (NOW - CLOCK_TOLERANCE - SECOND, NOW + CERTIFICATE_LIFE + SECOND):
        with pytest.raises(VerificationError):
            verify(authority, leaf, moment)
    with pytest.raises(VerificationError):
        verify(authority, leaf, NOW, "another.name")
    with pytest.raises(VerificationError):
        verify(Authority.create(NOW), leaf, NOW)


def test_a_nodes_certificate_opens_no_door_as_the_broker() -> None:
    authority = Authority.create(NOW)
    node = authority.issue_to_node("n1", make_key().public_key(), NOW)
    with pytest.raises(VerificationError):
        verify(authority, node, NOW)
    verify(authority, node, NOW, node_name("n1"))  # to those who ask its models it is the node
    with pytest.raises(VerificationError):
        verify(authority, node, NOW, node_name("n2"))
    policy = PolicyBuilder().store(Store([authority.certificate])).time(NOW)
    found = policy.build_client_verifier().verify(node, [])
    assert [name.value for name in found.subjects or ()] == ["spiffe://tiercel.internal/node/n1", node_name("n1")]


def test_a_node_is_called_by_the_names_that_it_was_given_and_by_no_others() -> None:
    authority = Authority.create(NOW)
    names = ("gpu1.lab.example", "models.example")
    node = authority.issue_to_node("n1", make_key().public_key(), NOW, names)
    assert listen_names_of(node) == names
    assert listen_names_of(authority.issue_to_node("n1", make_key().public_key(), NOW)) == ()
    for name in (*names, node_name("n1")):
        verify(authority, node, NOW, name)
    for name in ("gpu2.lab.example", "x.models.example", "example"):
        with pytest.raises(VerificationError):
            verify(authority, node, NOW, name)


def test_a_tenants_certificate_is_for_asking_and_for_a_day() -> None:
    authority = Authority.create(NOW)
    tenant = authority.issue_to_tenant("alice", make_key().public_key(), NOW)
    assert tenant.not_valid_after_utc == NOW + TENANT_LIFE
    policy = PolicyBuilder().store(Store([authority.certificate])).time(NOW)
    found = policy.build_client_verifier().verify(tenant, [])
    assert [name.value for name in found.subjects or ()] == ["spiffe://tiercel.internal/tenant/alice"]
    for name in (BROKER_NAME, node_name("alice")):
        with pytest.raises(VerificationError):
            verify(authority, tenant, NOW, name)


def test_what_it_signs_signs_nothing_and_each_has_a_number_of_its_own() -> None:
    authority = Authority.create(NOW)
    issued = [authority.issue_to_node("n1", make_key().public_key(), NOW) for _ in range(20)]
    assert len({certificate.serial_number for certificate in issued}) == 20
    assert not issued[0].extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert authority.certificate.not_valid_after_utc == NOW + AUTHORITY_LIFE


def test_it_comes_back_from_its_files_and_from_no_others() -> None:
    authority, other = Authority.create(NOW), Authority.create(NOW)
    key, certificate = key_to_pem(authority.key), to_pem(authority.certificate)
    assert Authority.from_pem(key, certificate).pin == authority.pin
    for wrong in ((key_to_pem(other.key), certificate), (b"", certificate), (key, b"")):
        with pytest.raises(CertificateError):
            Authority.from_pem(*wrong)


def test_one_that_is_good_for_seconds_is_not_old_from_the_beginning() -> None:
    certificate = Authority.create(NOW).issue_to_broker([], NOW, life=40 * SECOND).certificate
    assert certificate.not_valid_before_utc == NOW - 40 * SECOND
    assert [is_due(certificate, NOW + seconds * SECOND) for seconds in (0, 8, 20)] == [False, False, True]
