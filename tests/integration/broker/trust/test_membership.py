"""Who is a node, over a real database and a clock that the test sets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from sqlalchemy import text

from testing.clock import ManualClock
from tiercel.broker.store.members import MemberStore
from tiercel.broker.store.sql import Store, sqlite_url
from tiercel.broker.trust.authority import CERTIFICATE_LIFE, Authority
from tiercel.broker.trust.kept_authority import KeptAuthority
from tiercel.broker.trust.membership import MOST_TOKENS, TOKEN_SECONDS, Admitted, Membership
from tiercel.core.errors import (
    InvalidSpecError,
    NodeTakenError,
    NotAuthenticatedError,
    NotFoundError,
    QuotaExceededError,
    TiercelError,
)
from tiercel.core.trust.certificates import listen_names_of, make_key, make_request, node_of, read_chain

START = 1_800_000_000.0
AUTHORITY = Authority.create(datetime.fromtimestamp(START, UTC))
DAY = 86_400.0
LIFE = CERTIFICATE_LIFE.total_seconds()


@contextlib.asynccontextmanager
async def opened(folder: Path, clock: ManualClock, names: Sequence[str] = ()) -> AsyncIterator[Membership]:
    async with Store(sqlite_url(folder / "broker.sqlite")) as store:
        membership = Membership(MemberStore(store), KeptAuthority(folder, AUTHORITY), clock, names=names)
        await membership.start()
        yield membership


async def let_in(membership: Membership, node: str = "n1") -> x509.Certificate:
    token, _ = await membership.make_token()
    return read_chain((await membership.join(token.id, token.secret, node, make_request(make_key()))).chain)[0]


async def test_a_token_lets_one_machine_in_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(START)
    async with opened(tmp_path, clock) as membership:
        token, expires_at = await membership.make_token()
        assert expires_at == START + TOKEN_SECONDS
        key = make_key()
        chain = read_chain((await membership.join(token.id, token.secret, "n1", make_request(key))).chain)
        assert chain[1] == AUTHORITY.certificate
        assert chain[0].public_key() == key.public_key()
        assert membership.node_of(chain[0]) == node_of(chain[0]) == "n1"
        for node in ("n1", "n2"):
            with pytest.raises(NotAuthenticatedError, match="was used already"):
                await membership.join(token.id, token.secret, node, make_request(make_key()))
    assert f"join token {token.id} was used already" in caplog.text
    assert token.secret not in caplog.text
    assert token.secret.encode() not in (tmp_path / "broker.sqlite").read_bytes()


async def test_of_many_with_one_token_one_gets_in(tmp_path: Path) -> None:
    async with opened(tmp_path, ManualClock(START)) as membership:
        token, _ = await membership.make_token()
        asked = [membership.join(token.id, token.secret, f"n{each}", make_request(make_key())) for each in range(8)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [isinstance(answer, Admitted) for answer in answers].count(True) == 1
        assert sum(membership.is_member(f"n{each}") for each in range(8)) == 1


@pytest.mark.parametrize("tried", ["late", "wrong secret", "unknown", "another name"])
async def test_a_token_that_is_not_good_changes_nothing(tmp_path: Path, tried: str) -> None:
    clock = ManualClock(START)
    async with opened(tmp_path, clock) as membership:
        token, _ = await membership.make_token("n1", seconds=60)
        if tried == "late":
            clock.advance(60)
        token_id = "0" * 16 if tried == "unknown" else token.id
        secret = "s" * 43 if tried == "wrong secret" else token.secret
        words = {"late": "has run out", "another name": "is good for node n1 alone"}.get(
            tried, "not one of this broker's"
        )
        with pytest.raises(NotAuthenticatedError, match=words):
            await membership.join(token_id, secret, "n2" if tried == "another name" else "n1", make_request(make_key()))
        assert not membership.is_member("n1")
        if tried != "late":  # whoever guessed has not used it up
            await membership.join(token.id, token.secret, "n1", make_request(make_key()))
            assert membership.is_member("n1")


async def test_a_name_belongs_to_one_machine_and_a_wrong_request_uses_no_token_up(tmp_path: Path) -> None:
    async with opened(tmp_path, ManualClock(START)) as membership:
        await let_in(membership)
        token, _ = await membership.make_token()
        wrong: tuple[tuple[str, bytes, type[TiercelError]], ...] = (
            ("n1", make_request(make_key()), NodeTakenError),
            ("N1", make_request(make_key()), NodeTakenError),  # names of hosts do not tell the two apart
            ("n2", b"nothing", InvalidSpecError),
            ("n/2", make_request(make_key()), InvalidSpecError),
        )
        for node, request, error in wrong:
            with pytest.raises(error):
                await membership.join(token.id, token.secret, node, request)
        await membership.join(token.id, token.secret, "n2", make_request(make_key()))


async def test_a_node_has_the_names_that_its_token_says_and_no_others(tmp_path: Path) -> None:
    clock = ManualClock(START)
    claimed = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([]))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("claimed.example")]), critical=False)
    )
    async with opened(tmp_path, clock) as membership:
        token, _ = await membership.make_token(listen_names=["GPU1.lab.example", "models.example", "gpu1.lab.example"])
        key = make_key()
        request = claimed.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        admitted = await membership.join(token.id, token.secret, "n1", request)
        assert admitted.listen_names == ("gpu1.lab.example", "models.example")
        first = read_chain(admitted.chain)[0]
        assert listen_names_of(first) == admitted.listen_names
    clock.advance(LIFE - 1)
    async with opened(tmp_path, clock, ["models.example"]) as membership:  # the broker is called so by now
        fresh = read_chain(await membership.renew(first, request))[0]
        assert listen_names_of(fresh) == ("gpu1.lab.example",)
    async with opened(tmp_path, clock) as membership:
        again = read_chain(await membership.renew(fresh, request))[0]
        assert listen_names_of(again) == ("gpu1.lab.example", "models.example")
        await membership.remove("n1")
        assert listen_names_of(await let_in(membership)) == ()


async def test_a_token_takes_no_name_of_the_brokers(tmp_path: Path) -> None:
    async with opened(tmp_path, ManualClock(START), ["lab.example", "10.0.0.5"]) as membership:
        with pytest.raises(InvalidSpecError, match=r"listen_names: 'lab\.example' is a name of the broker's"):
            await membership.make_token(listen_names=["Lab.Example"])


async def test_members_outlive_the_broker_and_certificates_run_out(tmp_path: Path) -> None:
    clock = ManualClock(START)
    async with opened(tmp_path, clock) as membership:
        certificate = await let_in(membership)
    clock.advance(LIFE - 1)
    async with opened(tmp_path, clock) as membership:
        assert membership.node_of(certificate) == "n1"
        waiting = asyncio.ensure_future(membership.until_refused(certificate))
        await asyncio.sleep(0)
        clock.advance(2)
        with pytest.raises(NotAuthenticatedError, match="has run out"):
            await waiting
        assert not membership.is_member("n1")
        await let_in(membership)  # the name is free again
    async with opened(tmp_path, clock) as membership:
        with pytest.raises(NotAuthenticatedError, match="does not count"):
            membership.node_of(certificate)


async def test_a_broker_that_began_once_with_a_wrong_clock_has_its_members_when_that_is_set(tmp_path: Path) -> None:
    clock = ManualClock(START)
    async with opened(tmp_path, clock) as membership:
        mine, lost = await let_in(membership), await let_in(membership, "n2")
    clock.set_forward(400 * DAY)
    async with opened(tmp_path, clock) as membership:
        assert not membership.nodes()
        with pytest.raises(NotAuthenticatedError, match="has run out"):
            membership.node_of(mine)
        taken = await let_in(membership, "N2")  # the name was free by that clock
    clock.set_forward(-400 * DAY)
    async with opened(tmp_path, clock) as membership:
        assert membership.node_of(mine) == "n1"
        assert membership.node_of(taken) == "N2"
        with pytest.raises(NotAuthenticatedError, match="does not count"):  # never two machines of one name
            membership.node_of(lost)


async def test_who_is_removed_is_refused_from_then_on_and_its_waiting_ends(tmp_path: Path) -> None:
    clock = ManualClock(START)
    async with opened(tmp_path, clock) as membership:
        first = await let_in(membership)
        waiting = asyncio.ensure_future(membership.until_refused(first))
        bound, _ = await membership.make_token("n1")
        await membership.remove("n1")
        clock.advance(1)
        with pytest.raises(NotAuthenticatedError, match="was removed"):
            await waiting
        with pytest.raises(NotAuthenticatedError):  # a token for its name alone went with it
            await membership.join(bound.id, bound.secret, "n1", make_request(make_key()))
        with pytest.raises(NotFoundError):
            await membership.remove("n1")
        second = await let_in(membership)
        assert membership.node_of(second) == "n1"
    async with opened(tmp_path, clock) as membership:
        assert membership.node_of(second) == "n1"
        with pytest.raises(NotAuthenticatedError):
            membership.node_of(first)


async def test_a_node_has_two_certificates_at_most_however_often_it_renews(tmp_path: Path) -> None:
    clock = ManualClock(START)
    async with opened(tmp_path, clock) as membership:
        certificate = await let_in(membership)
        fresh = certificate
        for _ in range(5):
            fresh = read_chain(await membership.renew(certificate, make_request(make_key())))[0]
        assert membership.node_of(certificate) == membership.node_of(fresh) == "n1"
        clock.advance(LIFE / 2)
        last = read_chain(await membership.renew(fresh, make_request(make_key())))[0]
        with pytest.raises(NotAuthenticatedError):
            membership.node_of(certificate)
        clock.advance(LIFE / 2 + 1)
        with pytest.raises(NotAuthenticatedError):
            await membership.renew(fresh, make_request(make_key()))
        assert membership.node_of(last) == "n1"
        await membership.remove("n1")
        with pytest.raises(NotAuthenticatedError):
            await membership.renew(last, make_request(make_key()))


async def test_a_stranger_with_a_certificate_of_the_same_form_is_nobody(tmp_path: Path) -> None:
    async with opened(tmp_path, ManualClock(START)) as membership:
        certificate = await let_in(membership)
        now = datetime.fromtimestamp(START, UTC)
        for authority in (AUTHORITY, Authority.create(now)):
            forged = authority.issue_to_node("n1", make_key().public_key(), now)
            with pytest.raises(NotAuthenticatedError):
                membership.node_of(forged)
        assert membership.node_of(certificate) == "n1"


async def test_tokens_that_nobody_uses_are_bounded(tmp_path: Path) -> None:
    clock = ManualClock(START)
    async with Store(sqlite_url(tmp_path / "broker.sqlite")) as store:
        membership = Membership(MemberStore(store), KeptAuthority(tmp_path, AUTHORITY), clock)
        await membership.start()
        async with store.writing() as connection:
            rows = [{"id": f"{each}", "at": START + TOKEN_SECONDS} for each in range(MOST_TOKENS)]
            insert = "INSERT INTO join_tokens (id, secret_sha256, node, expires_at) VALUES (:id, '', '', :at)"
            await connection.execute(text(insert), rows)
        with pytest.raises(QuotaExceededError):
            await membership.make_token()
        clock.advance(TOKEN_SECONDS)
        await membership.make_token()
        clock.advance(2 * 86_400)
        await membership.make_token()
        async with store.reading() as connection:
            assert await connection.scalar(text("SELECT count(*) FROM join_tokens")) == 1
        for seconds in (0.5, 8 * 86_400.0, float("nan"), float("inf")):
            with pytest.raises(InvalidSpecError):
                await membership.make_token(seconds=seconds)
