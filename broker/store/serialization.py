"""Frozen dataclasses of the domain to JSON and back, by their type hints."""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import json
import types
import typing
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

# Where several dataclasses may stand in one place, this key says which one does.
_TAG = "type"


def dumps(value: object) -> str:
    """A dataclass as JSON text. NaN and infinities are written as Python's json module does, and survive."""
    return json.dumps(_to_plain(value), separators=(",", ":"))


def loads(kind: type[T], text: str) -> T:
    """The dataclass of type ``kind`` that :func:`dumps` wrote.

    Fields that the text does not have, because an older version wrote it, get their defaults.

    Raises:
        ValueError: The text was not written for this type.
    """
    try:
        value: T = _dataclass_reader(typing.cast("Hashable", kind))(json.loads(text))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"this is not the text of a {kind.__name__}: {error!r}") from error
    return value


def _to_plain(value: object) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: _to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {_TAG: type(value).__name__, **fields}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Mapping):
        return {str(key): _to_plain(entry) for key, entry in value.items()}
    if isinstance(value, frozenset):
        return sorted(_to_plain(entry) for entry in value)
    if isinstance(value, tuple):
        return [_to_plain(entry) for entry in value]
    return value


@functools.cache
def _reader(hint: Any) -> Callable[[Any], Any]:
    """What turns plain JSON into a value of the type that ``hint`` names."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in {types.UnionType, typing.Union}:
        return _union_reader(arguments)
    if origin is tuple:
        return _sequence_reader(tuple, arguments[0])
    if origin is frozenset:
        return _sequence_reader(frozenset, arguments[0])
    if origin is not None and issubclass(origin, Mapping):
        read = _reader(arguments[1])
        return lambda plain: {key: read(entry) for key, entry in plain.items()}
    if dataclasses.is_dataclass(hint):
        return _dataclass_reader(typing.cast("Hashable", hint))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint
    if hint is bytes:
        return base64.b64decode
    if hint is float:
        return float
    return lambda plain: plain


def _sequence_reader(kind: Callable[[Any], Any], entry: Any) -> Callable[[Any], Any]:
    read = _reader(entry)
    return lambda plain: kind(read(part) for part in plain)


def _union_reader(arguments: tuple[Any, ...]) -> Callable[[Any], Any]:
    choices = [argument for argument in arguments if argument is not types.NoneType]
    if len(choices) == 1:
        read = _reader(choices[0])
        return lambda plain: None if plain is None else read(plain)
    by_name = {choice.__name__: _reader(choice) for choice in choices}
    return lambda plain: None if plain is None else by_name[plain[_TAG]](plain)


@functools.cache
def _dataclass_reader(kind: Hashable) -> Callable[[Any], Any]:
    make = typing.cast("type[Any]", kind)
    hints = typing.get_type_hints(make)
    readers = {field.name: _reader(hints[field.name]) for field in dataclasses.fields(make)}

    def read(plain: dict[str, Any]) -> Any:
        if plain.get(_TAG) != make.__name__:
            raise ValueError(f"this is the text of a {plain.get(_TAG)}, not of a {make.__name__}")
        return make(**{name: reader(plain[name]) for name, reader in readers.items() if name in plain})

    return read
