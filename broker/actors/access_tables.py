"""The tables of who may ask what, one for each node: from the endpoints, their keys and where those are used."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from tiercel.broker.lifecycle.access import KeptKey, counts, divided, rule_of
from tiercel.core.endpoint_access import AccessTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tiercel.core.endpoint_access import KeyUse
    from tiercel.core.endpoints import Endpoint

DIVIDE_SECONDS: Final = 2.0
"""How often rates are divided anew."""
_KEPT: Final = 0.5
"""What counts at the next division of what came before the last one."""
_WORTH_TELLING: Final = 0.1


class AccessTables:
    """Owned by the registry: every change is made here, and the tables follow from it."""

    def __init__(self) -> None:
        self._endpoints: dict[str, Endpoint] = {}
        self._keys: dict[str, KeptKey] = {}
        self._by_endpoint: dict[str, dict[str, KeptKey]] = defaultdict(dict)
        self._tables: dict[str, AccessTable] = {}
        self._asked: dict[str, dict[str, float]] = defaultdict(dict)
        self._parts: dict[str, dict[str, float]] = {}  # by node, then key
        self._divided_at = 0.0

    def show(self, endpoint: Endpoint) -> bool:
        """An endpoint as it is now; whether who may ask it is another than before."""
        known = self._endpoints.get(endpoint.name)
        self._endpoints[endpoint.name] = endpoint
        if known is not None and _facts(known) == _facts(endpoint):
            return False
        self._tables.clear()
        return True

    def keep(self, keys: Iterable[KeptKey]) -> None:
        """Further keys."""
        for kept in keys:
            self._keys[kept.key.id] = kept
            self._by_endpoint[kept.key.endpoint][kept.key.id] = kept
        self._tables.clear()

    def drop(self, key_id: str) -> None:
        """A key that counts no more."""
        kept = self._keys.pop(key_id, None)
        if kept is not None:
            self._by_endpoint[kept.key.endpoint].pop(key_id, None)
            self._asked.pop(key_id, None)
            self._tables.clear()

    def keys_of(self, tenant: str) -> list[KeptKey]:
        """The keys of a tenant that count, by endpoint and age."""
        found = (kept for kept in self._keys.values() if kept.tenant == tenant and self._counts(kept))
        return sorted(found, key=lambda each: (each.key.endpoint, each.key.created_at, each.key.id))

    def table(self, node_id: str) -> AccessTable:
        """What a node is told; the same object for as long as that is the same."""
        found = self._tables.get(node_id)
        if found is None:
            parts = self._parts.get(node_id, {})
            rules = (
                rule_of(endpoint, filter(self._counts, self._by_endpoint[name].values()), parts)
                for name, endpoint in sorted(self._endpoints.items())
            )
            found = self._tables[node_id] = AccessTable(tuple(rules))
        return found

    def note_uses(self, node_id: str, uses: Iterable[KeyUse]) -> None:
        """What came with keys on a node."""
        for use in uses:
            if use.id in self._keys:
                asked = self._asked[use.id]
                asked[node_id] = asked.get(node_id, 0.0) + use.requests

    def divide(self, nodes: Sequence[str], now: float) -> bool:
        """Divide rates among nodes by what came lately, now and then; whether that is worth telling.

        Args:
            nodes: Those that may be asked.
            now: Seconds of a steady clock.
        """
        if now - self._divided_at < DIVIDE_SECONDS:
            return False
        self._divided_at = now
        parts: dict[str, dict[str, float]] = {name: {} for name in nodes}
        for key_id, kept in self._keys.items():
            if kept.key.per_second:
                for name, part in divided(kept.key.per_second, self._asked[key_id], nodes).items():
                    parts[name][key_id] = part
        self._asked = defaultdict(dict, {key: _faded(asked) for key, asked in self._asked.items()})
        if not _differ(self._parts, parts):
            return False
        self._parts = parts
        self._tables.clear()
        return True

    def _counts(self, kept: KeptKey) -> bool:
        endpoint = self._endpoints.get(kept.key.endpoint)
        return endpoint is not None and counts(kept, endpoint)


def _facts(endpoint: Endpoint) -> tuple[object, ...]:
    return endpoint.tenant, endpoint.access, endpoint.keys_from


def _faded(asked: dict[str, float]) -> dict[str, float]:
    return {node: count * _KEPT for node, count in asked.items() if count * _KEPT >= 1.0}


def _differ(before: dict[str, dict[str, float]], after: dict[str, dict[str, float]]) -> bool:
    """Whether any part differs by more than nodes need to be told for."""
    if before.keys() != after.keys():
        return True
    return any(
        before[node].keys() != after[node].keys()
        or any(abs(part - before[node][key]) > _WORTH_TELLING * part for key, part in after[node].items())
        for node in after
    )
