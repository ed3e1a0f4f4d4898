"""How a node proves who it is: on this machine by the agents' token, from others by its certificate."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn, Protocol

from tiercel.broker.api.auth import require_node
from tiercel.core.errors import NotAuthenticatedError
from tiercel.core.trust.certificates import CertificateError, read_chain

if TYPE_CHECKING:
    from cryptography import x509

    from tiercel.broker.api.auth import Context
    from tiercel.broker.api.strangers import Strangers
    from tiercel.broker.tenancy import Tenancy
    from tiercel.broker.trust.membership import Membership


class NodeDoor(Protocol):
    """A listener for agents."""

    is_local: bool  # whether only this machine reaches it

    def require(self, context: Context, node_id: str) -> None:
        """Let only the agent of this node through.

        Raises:
            NotAuthenticatedError: The call is not that agent's.
        """

    async def until_refused(self, context: Context) -> None:
        """Wait for as long as the caller may be what it is.

        Raises:
            NotAuthenticatedError: It may no longer.
        """

    def authorities(self) -> tuple[str, ...]:
        """Pins of the authorities that the caller is to believe, the one first by which its certificate is to be."""


class LocalDoor:
    """Of this machine alone: whoever has the agents' token speaks for any node that did not join from elsewhere.

    Args:
        membership: Who joined; None where nobody can.
    """

    is_local = True

    def __init__(self, tenancy: Tenancy, membership: Membership | None) -> None:
        self._tenancy = tenancy
        self._membership = membership

    def require(self, context: Context, node_id: str) -> None:
        """See :class:`NodeDoor`."""
        require_node(context, self._tenancy)
        if self._membership is not None and self._membership.is_member(node_id):
            raise NotAuthenticatedError(
                f"node {node_id} joined from another machine; give this one another name with --node-id",
                field="node_id",
            )

    async def until_refused(self, context: Context) -> None:
        """For ever."""
        del context
        await asyncio.Event().wait()

    def authorities(self) -> tuple[str, ...]:
        """None: it has no certificate."""
        return ()


class MembersDoor:
    """For other machines: a node is who its certificate says, while that counts."""

    is_local = False

    def __init__(self, membership: Membership, strangers: Strangers) -> None:
        self._membership = membership
        self._strangers = strangers

    def require(self, context: Context, node_id: str) -> None:
        """See :class:`NodeDoor`."""
        proven = self._membership.node_of(certificate_of(context))
        if proven != node_id:
            raise NotAuthenticatedError(
                f"the certificate is that of node {proven}, which cannot speak for {node_id[:64]!r}", field="node_id"
            )
        self._strangers.know(context.peer())

    async def until_refused(self, context: Context) -> NoReturn:
        """See :class:`NodeDoor`."""
        await self._membership.until_refused(certificate_of(context))

    def authorities(self) -> tuple[str, ...]:
        """See :class:`NodeDoor`."""
        return self._membership.pins()


def certificate_of(context: Context) -> x509.Certificate:
    """What the other end of an encrypted connection has proven to own.

    Raises:
        NotAuthenticatedError: Nothing.
    """
    found = context.auth_context().get("x509_pem_cert", ())
    try:
        return read_chain(b"".join(found))[0]
    except CertificateError:
        raise NotAuthenticatedError("the connection shows no certificate; join first with 'tiercel join'") from None
