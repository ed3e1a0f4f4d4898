"""Which machines joined, and the tokens by which others may: in the broker's database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import delete, func, insert, select, update

from tiercel.broker.store import tables

if TYPE_CHECKING:
    from tiercel.broker.store.sql import Store

_TOKENS = tables.join_tokens.c
_CERTIFICATES = tables.node_certificates.c
# Why a token is refused can be said for so long after it ran out.
_REMEMBERED_SECONDS = 86_400.0
# A certificate that has run out may be good again: the clock of a machine that was just started may be years ahead.
_MEMBERS_REMEMBERED_SECONDS = 10 * 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class KeptToken:
    """What is kept of a join token."""

    id: str  # names it
    secret_sha256: str  # enough to know its secret again
    node: str  # the only name that it is good for; empty for any
    expires_at: float  # seconds since the Unix epoch
    used_at: float | None = None  # when a machine joined with it, or None
    listen_names: tuple[str, ...] = ()  # names that the certificate of whoever joins with it has
    pin: str = ""  # of the authority that its line tells to believe; empty where that was not written down
    chain: bytes = b""  # the certificates that who used it was given, PEM; empty where that was not written down


@dataclass(frozen=True, slots=True)
class Member:
    """A certificate that counts."""

    serial: str  # its number, hexadecimal
    node: str  # whose it is
    expires_at: float  # seconds since the Unix epoch
    authority: str = ""  # pin of the authority that signed it; empty where that was not written down
    listen_names: tuple[str, ...] = ()  # names by which the operator lets others call the node


class MemberStore:
    """Keeps join tokens and members."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def load(self, now: float) -> list[Member]:
        """The members, with those whose certificates have run out, by this clock."""
        table = tables.node_certificates
        async with self._store.writing() as connection:
            await connection.execute(delete(table).where(_CERTIFICATES.expires_at < now - _MEMBERS_REMEMBERED_SECONDS))
            rows = (await connection.execute(select(table))).all()
        return [
            Member(row.serial, row.node, row.expires_at, row.authority, tuple(row.listen_names.split())) for row in rows
        ]

    async def find_token(self, token_id: str) -> KeptToken | None:
        """A token, used or not; None if nobody knows it, or it ran out long ago."""
        async with self._store.reading() as connection:
            row = (await connection.execute(select(tables.join_tokens).where(_TOKENS.id == token_id))).one_or_none()
        if row is None:
            return None
        names, chain = tuple(row.listen_names.split()), row.chain.encode()
        return KeptToken(row.id, row.secret_sha256, row.node, row.expires_at, row.used_at, names, row.pin, chain)

    async def add_token(self, token: KeptToken, now: float, most: int) -> bool:
        """Keep a token; whether there was room, with so many that still may be used at most."""
        table = tables.join_tokens
        usable = select(func.count()).where(_TOKENS.expires_at > now, _TOKENS.used_at.is_(None))
        async with self._store.writing() as connection:
            await connection.execute(delete(table).where(_TOKENS.expires_at < now - _REMEMBERED_SECONDS))
            if (await connection.scalar(usable) or 0) >= most:
                return False
            await connection.execute(insert(table).values(_token_row(token)))
        return True

    async def admit(self, token_id: str, member: Member, chain: bytes, now: float) -> bool:
        """Use a token up for a member who is given ``chain``, both or neither; whether the token could still be used.

        Nothing that another machine had of that name counts any more.
        """
        unused = (_TOKENS.id == token_id, _TOKENS.used_at.is_(None), _TOKENS.expires_at > now)
        async with self._store.writing() as connection:
            use = update(tables.join_tokens).where(*unused).values(used_at=now, chain=chain.decode())
            used = await connection.execute(use)
            if used.rowcount != 1:
                return False
            same = func.lower(_CERTIFICATES.node) == member.node.lower()
            await connection.execute(delete(tables.node_certificates).where(same))
            await connection.execute(insert(tables.node_certificates).values(_member_row(member)))
        return True

    async def replace(self, kept_serial: str, member: Member) -> None:
        """Add a member's next certificate; of its earlier ones only the one it used to ask for this still counts."""
        others = (_CERTIFICATES.node == member.node, _CERTIFICATES.serial != kept_serial)
        async with self._store.writing() as connection:
            await connection.execute(delete(tables.node_certificates).where(*others))
            await connection.execute(insert(tables.node_certificates).values(_member_row(member)))

    async def keep_only(self, authority: str, node: str = "") -> None:
        """Forget all certificates by other authorities; those of one node alone where one is named."""
        others = [_CERTIFICATES.authority != authority, *([_CERTIFICATES.node == node] if node else [])]
        async with self._store.writing() as connection:
            await connection.execute(delete(tables.node_certificates).where(*others))

    async def remove(self, node: str) -> None:
        """Forget all certificates of a node, and the tokens that are good for its name alone."""
        async with self._store.writing() as connection:
            await connection.execute(delete(tables.node_certificates).where(_CERTIFICATES.node == node))
            await connection.execute(delete(tables.join_tokens).where(_TOKENS.node == node))


def _token_row(token: KeptToken) -> dict[str, object]:
    return {
        "id": token.id,
        "secret_sha256": token.secret_sha256,
        "node": token.node,
        "expires_at": token.expires_at,
        "used_at": token.used_at,
        "listen_names": " ".join(token.listen_names),
        "pin": token.pin,
        "chain": token.chain.decode(),
    }


def _member_row(member: Member) -> dict[str, object]:
    return {
        "serial": member.serial,
        "node": member.node,
        "expires_at": member.expires_at,
        "authority": member.authority,
        "listen_names": " ".join(member.listen_names),
    }
