"""What another process says became of the cheap variants of a version."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.message import Message

from tiercel.core.cheap_variants import CHEAP, CheapVariant, VariantKind
from tiercel.core.errors import InvalidSpecError
from tiercel.core.wire import from_proto


def heard_variants(messages: Iterable[Message]) -> tuple[CheapVariant, ...]:
    """What another process says became of them (``CheapVariant``): of each kind the first, of none that is unknown."""
    found: dict[VariantKind, CheapVariant] = {}
    for message in messages:
        try:
            said = from_proto(CheapVariant, message)
        except InvalidSpecError:  # a kind of a later release
            continue
        if said.kind in CHEAP:
            found.setdefault(said.kind, said)
    return tuple(found.values())
