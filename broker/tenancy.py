"""Who may call: tokens of tenants and of nodes, in files that only the operator can read."""

from __future__ import annotations

import hmac
import os
import re
import secrets
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tiercel.broker.domain.errors import InvalidSpecError
from tiercel.broker.domain.tenants import DEFAULT_MAX_ACTIVE_JOBS, Tenant

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


@dataclass(frozen=True, slots=True)
class Tenancy:
    """Everybody who may call.

    Attributes:
        tenants: By name.
        node_token: Secret that agents carry.
    """

    tenants: Mapping[str, Tenant]
    node_token: str = field(repr=False)

    def find_tenant(self, token: str) -> Tenant | None:
        """Whose token it is, in a time that does not depend on the token."""
        found = None
        for tenant in self.tenants.values():
            if hmac.compare_digest(tenant.token.encode(), token.encode()):
                found = tenant
        return found

    def is_node(self, token: str) -> bool:
        """Whether it is the token of agents."""
        return hmac.compare_digest(self.node_token.encode(), token.encode())


def open_tenancy(state_dir: Path, names: Iterable[str]) -> Tenancy:
    """Read ``tenants.toml`` and ``node.token``, making whatever is missing.

    Args:
        state_dir: The broker's state directory; exists.
        names: Tenants that shall exist.

    Raises:
        InvalidSpecError: A name is not a tenant's name, or the file cannot be understood.
    """
    path = state_dir / "tenants.toml"
    tenants = _read(path)
    missing = [name for name in dict.fromkeys(names) if name not in tenants]
    for name in missing:
        if not _NAME.fullmatch(name):
            raise InvalidSpecError(
                f"tenants: {name!r} is not a tenant's name; use 1 to 63 of a-z, 0-9, '_' and '-', "
                "beginning with a letter or digit",
                field="tenants",
            )
        tenants[name] = Tenant(name, secrets.token_urlsafe(32))
    if missing:
        _write_secret(path, _format(tenants.values()))
    node_path = state_dir / "node.token"
    if not node_path.exists():
        _write_secret(node_path, secrets.token_urlsafe(32) + "\n")
    return Tenancy(tenants, node_path.read_text(encoding="utf-8").strip())


def _read(path: Path) -> dict[str, Tenant]:
    if not path.exists():
        return {}
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8")).get("tenants", {})
        return {
            name: Tenant(name, str(table["token"]), int(table.get("max_active_jobs", DEFAULT_MAX_ACTIVE_JOBS)))
            for name, table in tables.items()
        }
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidSpecError(
            f"tenants: {path} cannot be understood ({error}); each tenant is a table like\n"
            '[tenants.alice]\ntoken = "a long secret"\nmax_active_jobs = 20',
            field="tenants",
        ) from error


def _format(tenants: Iterable[Tenant]) -> str:
    tables = [
        f'[tenants.{tenant.name}]\ntoken = "{tenant.token}"\nmax_active_jobs = {tenant.max_active_jobs}\n'
        for tenant in tenants
    ]
    return "# Tokens of Tiercel's tenants: keep this file to yourself.\n\n" + "\n".join(tables)


def _write_secret(path: Path, text: str) -> None:
    temporary = path.with_suffix(path.suffix + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)
