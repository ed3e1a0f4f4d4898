"""Which machines are nodes: they join with a token, renew their certificates, and are removed.

A certificate counts while it is on the list that the broker keeps, so that removing a node is taking it off the list.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn

from tiercel.broker.store.members import KeptToken, Member
from tiercel.core.errors import (
    NodeTakenError,
    NotAuthenticatedError,
    NotFoundError,
    QuotaExceededError,
    TiercelError,
    wrong_field,
)
from tiercel.core.trust.certificates import (
    CertificateError,
    listen_names_of,
    node_of,
    node_uri,
    read_chain,
    read_request,
    to_pem,
)
from tiercel.core.trust.join_token import JoinToken, digest_of
from tiercel.core.trust.names import check_listen_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.store.members import MemberStore
    from tiercel.broker.trust.kept_authority import KeptAuthority

logger = logging.getLogger(__name__)

TOKEN_SECONDS = 15 * 60.0
"""How long a join token is good for, if nothing else is asked for."""
LONGEST_TOKEN_SECONDS = 7 * 86_400.0
MOST_TOKENS = 1_000
"""Tokens that may be used at the same time."""
_LOOK_SECONDS = 0.5
_USED = "was used already; each is good for one machine"


@dataclass(frozen=True, slots=True)
class Admitted:
    """What a machine gets that has joined."""

    chain: bytes  # its certificate and all that leads to the authority, PEM
    listen_names: tuple[str, ...]  # names of DNS by which it may be called, as its certificate has them


class Membership:
    """Decides who is a node.

    Args:
        pin: Of the authority that vouches for where machines join; that of ``kept`` when left out.
        names: By which others call the broker: no node may have one of them.
    """

    def __init__(
        self,
        store: MemberStore,
        kept: KeptAuthority,
        clock: Clock,
        pin: Callable[[], str] | None = None,
        names: Sequence[str] = (),
    ) -> None:
        self._brokers_names = frozenset(name.lower() for name in names)
        self._pin = pin or (lambda: kept.current.pin)
        self._store = store
        self._kept = kept
        self._clock = clock
        # One change at a time, so that two machines never get one name.
        self._changing = asyncio.Lock()
        self._members: dict[str, Member] = {}

    async def start(self) -> None:
        """Read what is kept."""
        self._members = {member.serial: member for member in await self._store.load(self._clock.now())}

    def is_member(self, node: str) -> bool:
        """Whether a machine joined by that name, however it is spelt, and was not removed."""
        now, name = self._clock.now(), node.lower()
        return any(member.node.lower() == name and member.expires_at > now for member in self._members.values())

    def nodes(self) -> frozenset[str]:
        """All that joined and were not removed."""
        now = self._clock.now()
        return frozenset(member.node for member in self._members.values() if member.expires_at > now)

    def node_of(self, certificate: x509.Certificate) -> str:
        """The node that a certificate proves its bearer to be.

        Raises:
            NotAuthenticatedError: It does not count, or not any more.
        """
        node, member = node_of(certificate), self._members.get(_serial(certificate))
        if member is None or not node or member.node != node:
            raise NotAuthenticatedError(
                f"the certificate of node {node!r} does not count: the node was removed, or the broker lost its list; "
                "join again with a line that 'tiercel node token' prints"
            )
        if member.expires_at <= self._clock.now():
            raise NotAuthenticatedError(
                f"the certificate of node {node} has run out; join again by the same name, with a new line "
                "that 'tiercel node token' prints"
            )
        return node

    async def until_refused(self, certificate: x509.Certificate) -> NoReturn:
        """Wait for as long as a certificate counts.

        Raises:
            NotAuthenticatedError: It counts no more.
        """
        while True:
            node = self.node_of(certificate)
            await self._let_go_of_earlier(node, certificate)
            await self._clock.sleep(_LOOK_SECONDS)

    def pins(self) -> tuple[str, ...]:
        """Stand for the authorities that nodes are to believe; the first is the one that is to vouch for them."""
        return self._kept.current.pins

    def behind(self) -> list[str]:
        """Nodes that have not been here with a certificate by the authority of now."""
        now, pin = self._clock.now(), self._kept.current.pin
        return sorted({each.node for each in self._members.values() if each.authority != pin and each.expires_at > now})

    async def let_go_of_those_behind(self) -> None:
        """Take all certificates by other authorities than that of now off the list.

        Raises:
            UnavailableError: The database takes nothing now.
        """
        async with self._changing:
            pin = self._kept.current.pin
            await self._store.keep_only(pin)
            self._members = {serial: each for serial, each in self._members.items() if each.authority == pin}

    async def make_token(
        self, node: str = "", seconds: float = TOKEN_SECONDS, listen_names: Sequence[str] = ()
    ) -> tuple[JoinToken, float]:
        """A token by which one machine may join, and when it runs out, in seconds since the Unix epoch.

        Args:
            node: The only name that it is good for; empty for any.
            seconds: How long it is good for.
            listen_names: Names of DNS that the certificate of whoever joins with it has, and those that follow on it.

        Raises:
            InvalidSpecError: That is no name, or no time, or a name is the broker's.
            QuotaExceededError: There are too many that nobody has used.
        """
        if node:
            _check_name(node)
        if not 1 <= seconds <= LONGEST_TOKEN_SECONDS:
            raise wrong_field("seconds", "a token is good for 1 s to 7 days; 900 s is the default")
        names = check_listen_names(listen_names)
        for name in names:
            if name in self._brokers_names:
                raise wrong_field(
                    "listen_names", f"{name!r} is a name of the broker's; give one that is the node's alone"
                )
        token = JoinToken.draw(self._pin())
        now = self._clock.now()
        kept = KeptToken(token.id, digest_of(token.secret), node, now + seconds, listen_names=names, pin=token.pin)
        if not await self._store.add_token(kept, now, MOST_TOKENS):
            raise QuotaExceededError(
                f"there are {MOST_TOKENS} join tokens that nobody has used; wait until some run out"
            )
        called = f", to be called {', '.join(names)}" if names else ""
        logger.info("join token %s was made, for %s%s, good for %g s", token.id, node or "any name", called, seconds)
        return token, kept.expires_at

    async def join(self, token_id: str, secret: str, node: str, request: bytes) -> Admitted:
        """Let a machine in: use the token up and sign its key.

        Whose answer was lost asks with the same key again, and gets what it was given.

        Args:
            token_id: Of the token.
            secret: Of the token.
            node: The name that the machine wants.
            request: For a certificate, PEM; what names stand in it does not matter.

        Raises:
            NotAuthenticatedError: The token is not good, or not any more, or not for this name.
            NodeTakenError: Another machine joined by this name.
            InvalidSpecError: The name or the request is wrong.
        """
        async with self._changing:
            token = await self._check_token(token_id, secret, node)
            if token.used_at is not None:
                return self._given_before(token, node, request)
            admitted, member = self._issue(node, request, token.listen_names)
            if self.is_member(node):
                raise NodeTakenError(
                    f"node_id: a machine joined as {node!r} already; choose another with --node-id, or take that one "
                    f"off the list with 'tiercel node remove {node}'",
                    field="node_id",
                )
            if not await self._store.admit(token_id, member, admitted.chain, self._clock.now()):
                raise _refused(token_id, "was used or ran out just now")
            others = {serial: each for serial, each in self._members.items() if each.node.lower() != node.lower()}
            self._members = {**others, member.serial: member}
        logger.info("a machine joined as node %s with token %s", node, token_id)
        return admitted

    async def renew(self, certificate: x509.Certificate, request: bytes) -> bytes:
        """The next certificates of a node, PEM; the one it has counts until it runs out.

        Raises:
            NotAuthenticatedError: The one it has does not count.
            InvalidSpecError: The request is wrong.
        """
        async with self._changing:
            node, serial = self.node_of(certificate), _serial(certificate)
            admitted, member = self._issue(node, request, self._members[serial].listen_names)
            await self._store.replace(serial, member)
            stay = {each.serial: each for each in self._members.values() if each.node != node or each.serial == serial}
            self._members = {**stay, member.serial: member}
        expires_at = datetime.fromtimestamp(member.expires_at, UTC)
        logger.info("node %s has a new certificate, good until %s", node, expires_at)
        return admitted.chain

    async def remove(self, node: str) -> None:
        """Take a node off the list: its certificates count no more.

        Raises:
            NotFoundError: No machine joined by that name.
        """
        async with self._changing:
            if not any(member.node == node for member in self._members.values()):
                raise NotFoundError(
                    f"node_id: no machine joined as {node[:64]!r}; 'tiercel nodes' lists all", field="node_id"
                )
            await self._store.remove(node)
            self._members = {serial: each for serial, each in self._members.items() if each.node != node}
        logger.info("node %s was removed", node)

    @property
    def authority_pem(self) -> bytes:
        """The certificates of those who vouch for nodes, PEM."""
        return to_pem(*self._kept.current.roots)

    def certify_tenant(self, tenant: str, request: bytes) -> bytes:
        """Certificates that say who a tenant is, PEM.

        Raises:
            InvalidSpecError: The request is wrong.
        """
        now = datetime.fromtimestamp(self._clock.now(), UTC)
        authority = self._kept.current
        return authority.chain_of(authority.issue_to_tenant(tenant, _key_of(request), now))

    async def _check_token(self, token_id: str, secret: str, node: str) -> KeptToken:
        token = await self._store.find_token(token_id)
        # Unknown and wrong are one answer: whoever guesses learns nothing of what there is.
        if token is None or not hmac.compare_digest(token.secret_sha256, digest_of(secret)):
            raise _refused(token_id, "is not one of this broker's")
        if token.expires_at <= self._clock.now():
            raise _refused(token_id, "has run out" if token.used_at is None else _USED)
        # Whoever has the key of an earlier authority may have been told the secret by somebody with that line.
        if token.pin not in {"", self._pin(), *self.pins()}:
            raise _refused(token_id, "was made before the broker's authority was rotated")
        if token.node not in {"", node}:
            raise _refused(token_id, f"is good for node {token.node} alone")
        return token

    def _given_before(self, token: KeptToken, node: str, request: bytes) -> Admitted:
        """What the machine with this key was given for this token, while that counts."""
        certificate = read_chain(token.chain)[0] if token.chain else None
        if (
            certificate is None
            or _serial(certificate) not in self._members
            or node_of(certificate) != node
            or certificate.public_key() != _key_of(request)
        ):
            raise _refused(token.id, _USED)
        logger.info("node %s asked for its certificate once more, with the same key and token %s", node, token.id)
        return Admitted(token.chain, listen_names_of(certificate))

    def _issue(self, node: str, request: bytes, names: tuple[str, ...]) -> tuple[Admitted, Member]:
        """A certificate with these names, and what is kept of it."""
        _check_name(node)
        authority, now = self._kept.current, datetime.fromtimestamp(self._clock.now(), UTC)
        # A broker may be called otherwise than when the token was made; its node must not pass for it.
        given = tuple(name for name in names if name not in self._brokers_names)
        certificate = authority.issue_to_node(node, _key_of(request), now, given, self._kept.life)
        expires_at = certificate.not_valid_after_utc.timestamp()
        member = Member(_serial(certificate), node, expires_at, authority.pin, names)
        return Admitted(authority.chain_of(certificate), given), member

    async def _let_go_of_earlier(self, node: str, shown: x509.Certificate) -> None:
        """A node that was here with a certificate by the authority of now needs those by another one no more."""
        pin = self._kept.current.pin
        if self._members[_serial(shown)].authority != pin or node not in self.behind():
            return
        try:
            async with self._changing:
                await self._store.keep_only(pin, node)
                stay = [each for each in self._members.values() if each.node != node or each.authority == pin]
                self._members = {each.serial: each for each in stay}
        except TiercelError as error:  # the disk takes nothing now: it is tried again in a moment
            logger.debug("what node %s had before stays for now: %s", node, error.message)
            return
        logger.info("node %s shows a certificate by the broker's new authority", node)


def _key_of(request: bytes) -> ec.EllipticCurvePublicKey:
    try:
        return read_request(request)
    except CertificateError as error:
        raise wrong_field("certificate_request", f"{error}") from error


def _serial(certificate: x509.Certificate) -> str:
    return f"{certificate.serial_number:x}"


def _check_name(node: str) -> None:
    try:
        node_uri(node)
    except CertificateError as error:
        raise wrong_field("node_id", f"{error}") from error


def _refused(token_id: str, why: str) -> NotAuthenticatedError:
    shown = token_id if token_id.isalnum() and len(token_id) <= 32 else "?"
    logger.warning("a machine was not let in: join token %s %s", shown, why)
    return NotAuthenticatedError(f"the join token {why}; get a new line with 'tiercel node token'", field="token")
