"""Dataclasses to JSON and back, by their type hints.

Understands what core is made of: dataclasses, enums, ``str``, ``int``, ``float``, ``bool``, ``bytes``, tuples,
frozensets, mappings with text keys, optional values, and unions of dataclasses, which carry the class's name as a tag.
The JSON is standard: numbers that JSON does not have (NaN, infinities) become text, bytes become base64.

A stored field that the class no longer has is ignored, and one that it has by now but that was not stored takes its
default, so that most changes of a dataclass need no migration. A field whose metadata has ``stored`` false is left out.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar, cast

_T = TypeVar("_T")
_TAG = "type"


class _Codec(NamedTuple):
    """Both ways between a Python value and what :mod:`json` can write."""

    encode: Callable[[Any], object]
    decode: Callable[[Any], object]


def to_json(value: object, hint: object = None) -> str:
    """Write a value as JSON.

    Args:
        value: The value.
        hint: Its type as an annotation would give it; the value's class when left out.

    Raises:
        TypeError: The hint has a part that this module does not understand, or the value does not fit the hint.
    """
    encoded = _codec(type(value) if hint is None else hint).encode(value)
    return json.dumps(encoded, allow_nan=False, separators=(",", ":"))


def from_json(hint: type[_T], text: str) -> _T:
    """Read a value that :func:`to_json` wrote for the same type.

    Raises:
        ValueError: The text is not such a value.
        TypeError: The hint has a part that this module does not understand.
    """
    return cast("_T", _codec(cast("Any", hint)).decode(json.loads(text)))


@functools.cache
def _codec(hint: object) -> _Codec:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in {typing.Union, types.UnionType}:
        return _union(arguments)
    if origin is tuple:
        return _tuple(arguments)
    if origin is frozenset:
        return _frozenset(arguments[0])
    if isinstance(origin, type) and issubclass(origin, Mapping) and arguments[0] is str:
        return _mapping(arguments[1])
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _dataclass(hint)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _Codec(lambda member: member.value, hint)
    if isinstance(hint, type) and hint in _SIMPLE:
        return _SIMPLE[hint]
    msg = f"{hint!r} cannot be stored: teach serialization.py about it"
    raise TypeError(msg)


def _checked(expected: type) -> _Codec:
    """Checks on both ways: what cannot be read back must not be written either."""

    def fits(value: object) -> bool:
        return isinstance(value, expected) and not (expected is int and isinstance(value, bool))

    def encode(value: object) -> object:
        if not fits(value):
            msg = f"{value!r} is not of type {expected.__name__}"
            raise TypeError(msg)
        return value

    def decode(value: object) -> object:
        if not fits(value):
            msg = f"expected {expected.__name__}, found {value!r}"
            raise ValueError(msg)
        return value

    return _Codec(encode, decode)


def _encode_float(value: float) -> float | str:
    return float(value) if math.isfinite(value) else str(float(value))


def _decode_float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        msg = f"expected a number, found {value!r}"
        raise ValueError(msg)  # noqa: TRY004 - the stored text is wrong, not the program
    return float(value)


_SIMPLE: dict[type, _Codec] = {
    str: _checked(str),
    int: _checked(int),
    bool: _checked(bool),
    float: _Codec(_encode_float, _decode_float),
    bytes: _Codec(
        lambda value: base64.b64encode(value).decode("ascii"), lambda text: base64.b64decode(text, validate=True)
    ),
}


def _union(members: tuple[object, ...]) -> _Codec:
    present = [member for member in members if member is not types.NoneType]
    inner = _codec(present[0]) if len(present) == 1 else _tagged(present)
    if len(present) == len(members):
        return inner
    return _Codec(
        lambda value: None if value is None else inner.encode(value),
        lambda value: None if value is None else inner.decode(value),
    )


def _tagged(members: list[object]) -> _Codec:
    """A union of dataclasses: an object with the class's name among its fields."""
    classes = {member.__name__: member for member in members if isinstance(member, type)}
    if len(classes) != len(members) or not all(map(dataclasses.is_dataclass, classes.values())):
        msg = f"only unions of dataclasses can be stored, not {members!r}"
        raise TypeError(msg)

    def encode(value: object) -> object:
        name = type(value).__name__
        return {_TAG: name, **cast("dict[str, object]", _codec(classes[name]).encode(value))}

    def decode(value: dict[str, object]) -> object:
        name = _as(dict, value).get(_TAG)
        if name not in classes:
            msg = f"expected one of {', '.join(classes)}, found {name!r}"
            raise ValueError(msg)
        return _codec(classes[cast("str", name)]).decode(value)

    return _Codec(encode, decode)


def _tuple(arguments: tuple[object, ...]) -> _Codec:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        item = _codec(arguments[0])
        return _Codec(lambda value: [item.encode(part) for part in value], lambda value: _parts(item, value))
    items = tuple(map(_codec, arguments))
    return _Codec(
        lambda value: [item.encode(part) for item, part in zip(items, value, strict=True)],
        lambda value: tuple(item.decode(part) for item, part in zip(items, _as(list, value), strict=True)),
    )


def _parts(item: _Codec, value: object) -> tuple[object, ...]:
    return tuple(item.decode(part) for part in _as(list, value))


def _frozenset(argument: object) -> _Codec:
    item = _codec(argument)
    # Sorted by its JSON, so that the same set is always the same text.
    return _Codec(
        lambda value: sorted((item.encode(part) for part in value), key=json.dumps),
        lambda value: frozenset(_parts(item, value)),
    )


def _mapping(argument: object) -> _Codec:
    item = _codec(argument)
    return _Codec(
        lambda value: {key: item.encode(part) for key, part in value.items()},
        lambda value: {key: item.decode(part) for key, part in _as(dict, value).items()},
    )


def _is_stored(field: dataclasses.Field[Any]) -> bool:
    return field.init and bool(field.metadata.get("stored", True))


def _dataclass(kind: type) -> _Codec:
    hints = typing.get_type_hints(kind)
    codecs = {field.name: _codec(hints[field.name]) for field in dataclasses.fields(kind) if _is_stored(field)}

    def encode(value: object) -> object:
        return {name: codec.encode(getattr(value, name)) for name, codec in codecs.items()}

    def decode(value: object) -> object:
        stored = _as(dict, value)
        values = {name: codec.decode(stored[name]) for name, codec in codecs.items() if name in stored}
        try:
            return kind(**values)
        except TypeError as error:
            msg = f"a stored {kind.__name__} lacks a field: {error}"
            raise ValueError(msg) from error

    return _Codec(encode, decode)


def _as(kind: type[_T], value: object) -> _T:
    if not isinstance(value, kind):
        msg = f"expected {kind.__name__}, found {value!r}"
        raise ValueError(msg)  # noqa: TRY004 - the stored text is wrong, not the program
    return value
