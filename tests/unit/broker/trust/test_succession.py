"""One authority takes the place of another: who believes which of them believes whom, by three implementations."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.verification import PolicyBuilder, Store

from testing.handshakes import Shown, shake_hands
from tiercel.broker.trust.authority import Authority
from tiercel.broker.trust.kept_authority import CERTIFICATE_FILE, KEY_FILE, KeptAuthority
from tiercel.core.errors import InvalidSpecError
from tiercel.core.trust.certificates import (
    CertificateError,
    Identity,
    authorities_in,
    key_to_pem,
    make_key,
    pin_of,
    read_chain,
    to_pem,
)
from tiercel.core.trust.names import node_name

NOW = datetime.now(UTC)
DAY = timedelta(days=1)


def node_by(authority: Authority) -> Identity:
    key = make_key()
    return Identity(key_to_pem(key), authority.chain_of(authority.issue_to_node("n1", key.public_key(), NOW)))


def test_during_a_rotation_both_ends_believe_each_other_wherever_each_of_them_is() -> None:
    first = Authority.create(NOW)
    both = first.successor(NOW)
    stages = [Shown(node_by(each), to_pem(*each.roots)) for each in (first, both)]
    for server in stages:
        for caller in stages:
            assert shake_hands(server, caller) == "TLSv1.3"


def test_who_believes_the_new_one_alone_is_content_and_after_the_second_step_nobody_else_is() -> None:
    first = Authority.create(NOW)
    both = first.successor(NOW)
    last = both.alone()
    turned, after, before = node_by(both), node_by(last), node_by(first)
    assert shake_hands(Shown(turned, to_pem(*both.roots)), Shown(after, to_pem(*last.roots))) == "TLSv1.3"
    assert shake_hands(Shown(after, to_pem(*last.roots)), Shown(turned, to_pem(*both.roots))) == "TLSv1.3"
    # A node that slept through it: neither end believes the other.
    assert "verify failed" in shake_hands(Shown(after, to_pem(*last.roots)), Shown(before, to_pem(*both.roots)))
    assert "verify failed" in shake_hands(Shown(after, to_pem(*last.roots)), Shown(before, to_pem(*first.roots)))


def made_before_rotations() -> Authority:
    """One whose certificate leaves no step to another authority, as all were of earlier releases."""
    found = Authority.create(NOW)
    name = found.certificate.subject
    made = x509.CertificateBuilder(name, name, found.key.public_key(), 1, NOW - DAY, NOW + DAY)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    for extension in found.certificate.extensions:
        if not isinstance(extension.value, x509.BasicConstraints):
            made = made.add_extension(extension.value, critical=extension.critical)
    return Authority(found.key, made.sign(found.key, hashes.SHA256()))


def test_an_authority_of_an_earlier_release_has_a_successor_too() -> None:
    first = made_before_rotations()
    both = first.successor(NOW)
    assert (
        shake_hands(Shown(node_by(both), to_pem(*both.roots)), Shown(node_by(first), to_pem(*first.roots))) == "TLSv1.3"
    )
    assert (
        shake_hands(Shown(node_by(first), to_pem(*first.roots)), Shown(node_by(both), to_pem(*both.roots))) == "TLSv1.3"
    )


def test_the_way_from_the_earlier_one_holds_by_the_strict_rules() -> None:
    first = Authority.create(NOW)
    both = first.successor(NOW)
    leaf, *others = read_chain(node_by(both).chain)
    for root in both.roots:
        policy = PolicyBuilder().store(Store([root])).time(NOW)
        policy.build_server_verifier(x509.DNSName(node_name("n1"))).verify(leaf, others)
    strict = ssl.create_default_context(cadata=to_pem(first.certificate).decode())
    strict.verify_flags |= ssl.VERIFY_X509_STRICT
    assert shake_hands(Shown(node_by(both), b""), Shown(None, b"", strict)) == "TLSv1.3"


def test_a_chain_says_whom_to_believe_and_what_only_leads_there_is_not_among_them() -> None:
    first = Authority.create(NOW)
    both = first.successor(NOW)
    chain = read_chain(node_by(both).chain)
    assert {pin_of(each) for each in authorities_in(chain)} == {first.pin, both.pin} == set(both.pins)
    assert both.link in chain
    assert both.link not in authorities_in(chain)
    assert authorities_in(read_chain(node_by(both.alone()).chain)) == [both.certificate]
    with pytest.raises(CertificateError, match="is missing"):
        authorities_in(chain[:2])


def test_each_step_comes_back_from_its_file_and_a_broken_one_is_refused(tmp_path: Path) -> None:
    kept = KeptAuthority.open(tmp_path, NOW)
    first = kept.current
    both = first.successor(NOW)
    for step in (both, both.alone()):
        kept.replace(step)
        found = KeptAuthority.open(tmp_path, NOW).current
        assert found.to_file() == step.to_file() == kept.current.to_file()
        assert read_chain((tmp_path / CERTIFICATE_FILE).read_bytes()) == list(step.roots)
        assert (tmp_path / KEY_FILE).stat().st_mode & 0o777 == 0o600
    assert key_to_pem(first.key) not in (tmp_path / KEY_FILE).read_bytes()
    stranger = Authority.create(NOW)
    assert both.link is not None
    for before in ((both.link,), (both.link, stranger.certificate), (stranger.certificate, first.certificate)):
        (tmp_path / KEY_FILE).write_bytes(Identity(key_to_pem(both.key), to_pem(both.certificate, *before)).to_file())
        with pytest.raises(InvalidSpecError, match="cannot be used"):
            KeptAuthority.open(tmp_path, NOW)
