"""How what tenants are told is turned into JSON."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from tiercel.core.html import detail
from tiercel.core.tiers import TierStatus

Json = dict[str, Any]


class Jsonable:
    """What can be turned into JSON."""

    __slots__ = ()

    def to_json(self) -> Json:
        """The same as JSON types; the keys are the attributes' names and are stable."""
        converted: Json = json_of(self)
        return converted

    def _repr_html_(self) -> str:
        """All of it, for notebooks."""
        return detail(type(self).__name__, self.to_json())


def json_of(value: Any) -> Any:
    """A view, or a part of one, as JSON types; the keys are the attributes' names and are stable."""
    match value:
        case enum.Enum():
            return value.value
        case datetime():
            return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case float() if not math.isfinite(value):
            return None
        case Mapping():
            return {str(key): json_of(item) for key, item in value.items()}
        case tuple():
            return [json_of(item) for item in value]
        case TierStatus():  # with what it is about as if it were its own
            return {"number": value.number, **json_of(value.tier), **_fields(value, {"number", "tier"})}
        case _ if dataclasses.is_dataclass(value):
            return _fields(value)
        case _:
            return value


def _fields(value: Any, but: Collection[str] = ()) -> Json:
    # Bytes are a script's content, which the broker leaves out of what it returns.
    shown = [field.name for field in dataclasses.fields(value) if field.metadata.get("shown", True)]
    found = ((name, getattr(value, name)) for name in shown if name not in but)
    return {name: json_of(item) for name, item in found if not isinstance(item, bytes)}
