"""Frozen types to JSON and back, by their type hints: what the broker's store keeps.

The JSON is standard: numbers that JSON does not have (NaN, infinities) become text, bytes become base64. Members of a
union of dataclasses tell each other apart by a field ``type`` with a literal of their own.

A stored field that the class no longer has is ignored, and one that it has by now but that was not stored takes its
default, so that most changes of a type need no migration. A field whose metadata has ``stored`` false is left out.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from typing import Any, NamedTuple, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError

_T = TypeVar("_T")
_CONFIG = ConfigDict(ser_json_inf_nan="strings", ser_json_bytes="base64", val_json_bytes="base64")


class _Codec(NamedTuple):
    adapter: TypeAdapter[Any]
    left_out: dict[str, Any]


def to_json(value: object) -> str:
    """Write a frozen type as JSON.

    Raises:
        ValueError: A field's value does not fit its type.
    """
    codec = _codec(cast("Any", type(value)))
    return codec.adapter.dump_json(value, exclude=codec.left_out, warnings="error").decode()


def from_json(kind: type[_T], text: str) -> _T:
    """Read a value that :func:`to_json` wrote for the same type.

    Raises:
        ValueError: The text is not such a value; names the field, without what it holds.
    """
    try:
        value: _T | None = _codec(cast("Any", kind)).adapter.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"])) or "it"
        msg = f"a stored {kind.__name__} cannot be read: {field}: {first['msg']}"
        raise ValueError(msg) from None
    if value is None:
        msg = f"a stored {kind.__name__} is null"
        raise ValueError(msg)
    return value


@functools.cache
def _codec(kind: Any) -> _Codec:
    # A dataclass takes no configuration from outside; an optional one does, and hands it to all that is in it.
    return _Codec(TypeAdapter(kind | None, config=_CONFIG), _left_out(kind))


def _left_out(kind: type) -> dict[str, Any]:
    """Fields that are not stored, as pydantic wants them named."""
    found: dict[str, Any] = {}
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if not field.metadata.get("stored", True):
            found[field.name] = True
            continue
        inner = [part for part in (hints[field.name], *typing.get_args(hints[field.name])) if _is_dataclass(part)]
        if len(inner) == 1 and (below := _left_out(inner[0])):
            is_many = typing.get_origin(hints[field.name]) is tuple
            found[field.name] = {"__all__": below} if is_many else below
    return found


def _is_dataclass(hint: object) -> bool:
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)
