"""What is known of a version of an endpoint in all, and how two of them differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from tiercel.core.endpoint_views import VersionInfo
from tiercel.core.jsonable import Jsonable, json_of
from tiercel.core.lineage import Lineage

_NOT_COMPARED = {"endpoint", "version", "curve", "submitted_at", "delivered_at", "job_name"}


@dataclass(frozen=True, slots=True)
class ModelCard(Jsonable):
    """A version, and where it comes from.

    Attributes:
        version: What it is, and where.
        lineage: Where it comes from.
    """

    version: VersionInfo
    lineage: Lineage

    @property
    def name(self) -> str:
        """``ENDPOINT:VERSION``."""
        return f"{self.version.endpoint}:{self.version.version}"


@dataclass(frozen=True, slots=True)
class Difference(Jsonable):
    """Something in which two versions are not the same.

    Attributes:
        what: Its name, as in the cards' JSON; of a mapping with the key, such as ``env.SEED``.
        first: What it is of the first version, as JSON; None where there is none.
        second: The same of the second one.
    """

    what: str
    first: Any
    second: Any


def differences(first: ModelCard, second: ModelCard) -> tuple[Difference, ...]:
    """In what two versions differ: what they are, and then where they come from."""
    ours, theirs = _facts(first), _facts(second)
    names = list(dict.fromkeys((*ours, *theirs)))
    return tuple(
        Difference(name, ours.get(name), theirs.get(name)) for name in names if ours.get(name) != theirs.get(name)
    )


def _facts(card: ModelCard) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for part in (card.version, card.lineage):
        for each in fields(part):
            value = getattr(part, each.name)
            if each.name in _NOT_COMPARED:
                continue
            if isinstance(value, Mapping):
                facts |= {f"{each.name}.{key}": json_of(inner) for key, inner in value.items()}
            else:
                facts[each.name] = json_of(value)
    return facts
