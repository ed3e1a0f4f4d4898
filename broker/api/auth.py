"""Who is calling: the token in the call's metadata."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tiercel.core.errors import NotAuthenticatedError, ProtocolError
from tiercel.v1 import PROTOCOL_KEY, protocol_mismatch

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    import grpc

    from tiercel.broker.access.people.people import People
    from tiercel.broker.tenancy import Caller, Tenancy
    from tiercel.core.tenants import Tenant

    Context = grpc.aio.ServicerContext[Any, Any]
    Metadata = Iterable[tuple[str, str | bytes]] | None

_SCHEME = "Bearer "


def caller_by_metadata(metadata: Metadata, tenancy: Tenancy) -> Caller:
    """Whose token stands in a call's metadata.

    Raises:
        ProtocolError: The call says that it speaks another version of the contract.
        NotAuthenticatedError: No token stands there, or one that belongs to nobody.
    """
    _check_protocol(metadata)
    caller = tenancy.find_caller(token_of(metadata))
    if caller is None:
        raise NotAuthenticatedError(
            "the token belongs to nobody; use one from tenants.toml in the broker's state directory"
        )
    return caller


async def arriving_caller(metadata: Metadata, tenancy: Tenancy, people: People | None) -> Caller:
    """The same at the gate, where it may take a moment to learn who shows a provider's token.

    Args:
        metadata: Of the call.
        tenancy: Whose tokens count.
        people: Knows the provider; None for none.

    Raises:
        TiercelError: As :func:`caller_by_metadata` and :meth:`.People.learn` do.
    """
    if people is not None:
        _check_protocol(metadata)
        await people.learn(token_of(metadata))
    return caller_by_metadata(metadata, tenancy)


def tenant_of(context: Context, tenancy: Tenancy) -> Tenant:
    """The tenant whose token the call carries; the gate has let it in.

    Raises:
        ProtocolError: It says that it speaks another version of the contract.
        NotAuthenticatedError: It carries none, or one that is no tenant's.
    """
    tenant = caller_by_metadata(context.invocation_metadata(), tenancy).tenant
    if tenant is None:
        raise NotAuthenticatedError(
            "the token is no tenant's; use one from tenants.toml in the broker's state directory"
        )
    return tenancy.with_quota(tenant)


def require_node(context: Context, tenancy: Tenancy) -> None:
    """Let only agents through.

    Raises:
        NotAuthenticatedError: The call does not carry the nodes' token.
    """
    error = node_token_error(context.invocation_metadata(), tenancy)
    if error is not None:
        raise error


def node_token_error(metadata: Metadata, tenancy: Tenancy) -> NotAuthenticatedError | None:
    """Why a call with this metadata is not an agent's; None if it is."""
    try:
        if tenancy.is_node(token_of(metadata)):
            return None
    except NotAuthenticatedError as error:
        return error
    return NotAuthenticatedError("the token is not the nodes'; use node.token in the broker's state directory")


def _check_protocol(metadata: Metadata) -> None:
    """Standard tools say nothing of a version, and are let through."""
    spoken = next((value for key, value in metadata or () if key == PROTOCOL_KEY), None)
    if spoken is None:
        return
    theirs = int(spoken) if isinstance(spoken, str) and re.fullmatch(r"[0-9]{1,9}", spoken) else 0
    mismatch = protocol_mismatch(theirs, "the client", "this broker")
    if mismatch:
        raise ProtocolError(mismatch, field=PROTOCOL_KEY)


def token_of(metadata: Metadata) -> str:
    """The token in a call's metadata.

    Raises:
        NotAuthenticatedError: There is none.
    """
    for key, value in metadata or ():
        if key == "authorization" and isinstance(value, str) and value.startswith(_SCHEME):
            return value[len(_SCHEME) :]
    raise NotAuthenticatedError("the call carries no token; send the metadata 'authorization: Bearer TOKEN'")
