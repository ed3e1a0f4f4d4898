"""What commands of the broker's operator share: whose token they use."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tiercel.broker.cli.session import run_to_the_end
from tiercel.core.errors import NotAuthenticatedError, wrong_field

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path
    from typing import TypeVar

    from tiercel.broker.client.connection import Connection

    T = TypeVar("T")

VARIABLE = "TIERCEL_OPERATOR_TOKEN"
"""What has an operator's token, where the state directory is not at hand."""


def as_operator(state_dir: Path | None, address: str, action: Callable[[Connection], Awaitable[T]]) -> T:
    """Run ``action`` with a connection that carries the operator's token; ends the command with a sentence if it fails.

    Args:
        state_dir: The broker's state directory; None for the default one.
        address: ``host:port`` of the broker; empty for the one of the state directory.
        action: What to do.
    """
    from tiercel.broker.client.state_dir import default_state_dir

    folder = state_dir or default_state_dir()
    return with_token(folder, address, lambda: _operator_token(folder), action)


def as_operator_or_tenant(
    state_dir: Path | None, address: str, tenant: str, action: Callable[[Connection], Awaitable[T]]
) -> T:
    """The same with the operator's token where it is at hand and no tenant is named, else with the tenant's.

    Args:
        state_dir: As of :func:`as_operator`.
        address: As there.
        tenant: Whose token to use; empty for the operator's, or that of ``default``.
        action: What to do.
    """
    from tiercel.broker.client.given_token import given_token
    from tiercel.broker.client.state_dir import default_state_dir, read_token

    folder = state_dir or default_state_dir()
    own = given_token(os.environ)
    if not tenant and (os.environ.get(VARIABLE) or (not own and os.access(folder / "operator.token", os.R_OK))):
        return as_operator(folder, address, action)
    return with_token(folder, address, lambda: own or read_token(folder, tenant or "default"), action)


def with_token(
    folder: Path, address: str, token: Callable[[], str | Path], action: Callable[[Connection], Awaitable[T]]
) -> T:
    """The same with whatever token ``token`` returns."""
    from tiercel.broker.client.connection import Connection
    from tiercel.broker.client.options import ClientOptions
    from tiercel.broker.client.state_dir import read_broker
    from tiercel.core.trust.trust import Trust

    async def call() -> T:
        where, trust = (address, Trust.from_environment(os.environ)) if address else read_broker(folder)
        connection = await Connection.open(where, token(), ClientOptions(), trust)
        try:
            return await action(connection)
        finally:
            await connection.close()

    return run_to_the_end(call())


def _operator_token(folder: Path) -> str:
    if given := os.environ.get(VARIABLE):
        return given
    path = folder / "operator.token"
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise wrong_field(
            "state_dir",
            f"there is no {path}; run this on the broker's machine with its --state-dir, or set {VARIABLE}",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise NotAuthenticatedError(
            f"{path} cannot be read ({error}); only the broker's operator may do this"
        ) from error
