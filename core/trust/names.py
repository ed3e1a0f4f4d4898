"""How certificates call nodes and tenants: names that are read without a library for certificates."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tiercel.core.errors import wrong_field

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NODE_URI: Final = "spiffe://tiercel.internal/node/"
TENANT_URI: Final = "spiffe://tiercel.internal/tenant/"
NODE_DOMAIN: Final = ".node.tiercel.internal"
NODE_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
MOST_LISTEN_NAMES: Final = 8
"""Names that a node's certificate may carry beside the one that it always has."""
MOST_NAME_CHARACTERS: Final = 100
# Labels of letters, digits and hyphens (RFC 1123, 2.1); the last is no number, since the whole would be an address.
_DNS_NAME: Final = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)*(?![0-9]+\Z)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
)
# These always mean something else: this machine, the broker, another node.
_RESERVED: Final = re.compile(r"(?:.*\.)?(?:localhost|tiercel\.internal)")
_TENANT: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


def wrong_node_id(node_id: str) -> str:
    """What whoever calls a node so is told, where it is no node's name."""
    return (
        f"{node_id[:64]!r} is not a node's name; use 1 to 63 of A-Z, a-z, 0-9, '.', '_' and '-', beginning with a "
        "letter or digit"
    )


def node_name(node_id: str) -> str:
    """The name that a node's certificate has for those who ask it, wherever it is."""
    return f"{node_id.lower()}{NODE_DOMAIN}"


def check_listen_names(names: Iterable[str]) -> tuple[str, ...]:
    """Names by which others call a node, as its certificate has them: in small letters, each once.

    Raises:
        InvalidSpecError: One is no such name, or there are too many; names the field.
    """
    checked: dict[str, None] = {}
    for name in names:
        if len(checked) == MOST_LISTEN_NAMES:
            raise wrong_field("listen_names", f"a node has at most {MOST_LISTEN_NAMES} names; leave some out")
        lower = name[: MOST_NAME_CHARACTERS + 1].lower()
        if len(lower) > MOST_NAME_CHARACTERS or not _DNS_NAME.fullmatch(lower):
            raise wrong_field(
                "listen_names",
                f"{lower!r} is not the name of a host; give one like gpu1.lab.example, of at most "
                f"{MOST_NAME_CHARACTERS} of a-z, 0-9, '-' and '.': no address, no port, no '*'",
            )
        if _RESERVED.fullmatch(lower):
            raise wrong_field(
                "listen_names", f"{lower!r} stands for another machine; give a name that is this node's alone"
            )
        checked[lower] = None
    return tuple(checked)


def node_in(uris: Sequence[str]) -> str:
    """The node that a certificate with these names speaks for; empty for none."""
    return _only(uris, NODE_URI, NODE_ID)


def tenant_in(uris: Sequence[str]) -> str:
    """The tenant that it speaks for; empty for none."""
    return _only(uris, TENANT_URI, _TENANT)


def _only(uris: Sequence[str], prefix: str, form: re.Pattern[str]) -> str:
    found = [uri.removeprefix(prefix) for uri in uris if uri.startswith(prefix)]
    return found[0] if len(found) == 1 and form.fullmatch(found[0]) else ""
