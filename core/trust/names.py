"""How certificates call nodes and tenants: names that are read without a library for certificates."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

NODE_URI: Final = "spiffe://tiercel.internal/node/"
TENANT_URI: Final = "spiffe://tiercel.internal/tenant/"
NODE_DOMAIN: Final = ".node.tiercel.internal"
NODE_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_TENANT: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def node_name(node_id: str) -> str:
    """The name that a node's certificate has for those who ask it, wherever it is."""
    return f"{node_id.lower()}{NODE_DOMAIN}"


def node_in(uris: Sequence[str]) -> str:
    """The node that a certificate with these names speaks for; empty for none."""
    return _only(uris, NODE_URI, NODE_ID)


def tenant_in(uris: Sequence[str]) -> str:
    """The tenant that it speaks for; empty for none."""
    return _only(uris, TENANT_URI, _TENANT)


def _only(uris: Sequence[str], prefix: str, form: re.Pattern[str]) -> str:
    found = [uri.removeprefix(prefix) for uri in uris if uri.startswith(prefix)]
    return found[0] if len(found) == 1 and form.fullmatch(found[0]) else ""
