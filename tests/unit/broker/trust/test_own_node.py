"""The certificates of the node beside the broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from tiercel.broker.trust.authority import Authority
from tiercel.broker.trust.kept_authority import KeptAuthority
from tiercel.broker.trust.own_node import OwnNode
from tiercel.core.errors import InvalidSpecError
from tiercel.core.trust.certificates import Identity, listen_names_of, names_in, node_of, read_chain

DAY = 86_400.0
NOW = 1_700_000_000.0


@dataclass
class Kept:
    folder: Path
    authority: Authority = field(default_factory=lambda: Authority.create(datetime.fromtimestamp(NOW, UTC)))
    time: float = NOW

    names: tuple[str, ...] = ()

    def write(self, node_id: str = "local") -> Identity:
        kept = KeptAuthority(self.folder, self.authority)
        OwnNode(kept, node_id, self.names, self.file, self.folder / "authority.pem", lambda: self.time).write()
        return Identity.from_file(self.file.read_bytes())

    @property
    def file(self) -> Path:
        return self.folder / "serving-identity.pem"


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "agent")


def test_it_is_the_nodes_by_the_brokers_authority_and_nobody_elses_to_read(kept: Kept) -> None:
    found = kept.write()
    assert node_of(found.certificate) == "local"
    found.certificate.verify_directly_issued_by(kept.authority.certificate)
    assert kept.file.stat().st_mode & 0o777 == 0o600
    assert kept.file.parent.stat().st_mode & 0o077 == 0
    assert read_chain((kept.folder / "authority.pem").read_bytes()) == [kept.authority.certificate]


def test_one_that_was_issued_by_a_clock_far_ahead_is_not_kept_when_that_is_set(kept: Kept) -> None:
    kept.time += 40 * DAY
    kept.write()
    kept.time -= 40 * DAY
    assert kept.write().certificate.not_valid_before_utc.timestamp() <= kept.time


def test_it_stays_until_two_thirds_of_its_life_and_then_gets_a_new_key(kept: Kept) -> None:
    first = kept.write()
    kept.time += 19 * DAY
    assert kept.write() == first
    kept.time += 2 * DAY
    second = kept.write()
    assert second.key != first.key
    assert second.certificate.not_valid_after_utc > first.certificate.not_valid_after_utc


def test_what_is_damaged_open_to_others_or_of_somebody_else_is_replaced(kept: Kept) -> None:
    first = kept.write()
    kept.file.write_bytes(b"half")
    second = kept.write()
    assert second != first
    kept.file.chmod(0o644)
    third = kept.write()
    assert third.key != second.key  # others may have read it
    assert kept.file.stat().st_mode & 0o777 == 0o600
    fourth = kept.write("other")
    assert node_of(fourth.certificate) == "other"
    kept.authority = Authority.create(datetime.fromtimestamp(NOW, UTC))
    fifth = kept.write("other")
    fifth.certificate.verify_directly_issued_by(kept.authority.certificate)
    (kept.folder / "authority.pem").unlink()
    assert kept.write("other") != fifth


def test_it_has_the_names_and_addresses_by_which_others_call_its_machine_and_is_made_anew_with_others(
    kept: Kept,
) -> None:
    plain = kept.write()
    assert listen_names_of(plain.certificate) == ()
    kept.names = ("lab.example", "10.0.0.5", "fd00::5")
    named = kept.write()
    names = names_in(named.certificate)
    assert names is not None
    assert names.get_values_for_type(x509.DNSName) == ["local.node.tiercel.internal", "lab.example"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.5", "fd00::5"]
    assert kept.write() == named
    kept.time += 21 * DAY  # its renewal keeps them, and so does another authority
    kept.authority = Authority.create(datetime.fromtimestamp(kept.time, UTC))
    renewed = kept.write()
    assert renewed != named
    assert names_in(renewed.certificate) == names
    kept.names = ("lab.example",)
    assert listen_names_of(kept.write().certificate) == ("lab.example",)


def test_a_name_that_cannot_stand_in_a_certificate_is_refused_with_what_to_do(kept: Kept) -> None:
    with pytest.raises(InvalidSpecError, match="--advertise none"):
        kept.write("n" * 64)
