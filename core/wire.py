"""Frozen types to messages of the contract and back, by the names of their fields.

A field of a type and the field of the message that has its name are the same fact, so that neither end lists fields:

* what the message may lack (``optional``, a message, a member of a ``oneof``) is None, or else the type's default;
* a tuple is ``repeated``, a mapping a ``map``, an enum the one whose values are named ``ENUM_MEMBER``;
* a time is a ``Timestamp``: seconds since the Unix epoch (``float``) or an aware ``datetime`` in UTC;
* a union of types is a ``oneof``, each member named like its class in lower case.

A field whose metadata has ``told`` false is not in the message under its name, and takes its default on the other end.
What a message has and the type has not is left alone.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import re
import types
import typing
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar, cast

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from tiercel.core.errors import wrong_field

_T = TypeVar("_T")
_M = TypeVar("_M", bound=Message)

_SCALARS: dict[object, tuple[int, ...]] = {
    str: (FieldDescriptor.CPPTYPE_STRING,),
    bytes: (FieldDescriptor.CPPTYPE_STRING,),
    bool: (FieldDescriptor.CPPTYPE_BOOL,),
    float: (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT),
    int: (
        FieldDescriptor.CPPTYPE_INT32,
        FieldDescriptor.CPPTYPE_INT64,
        FieldDescriptor.CPPTYPE_UINT32,
        FieldDescriptor.CPPTYPE_UINT64,
    ),
}
_TIMESTAMP = Timestamp.DESCRIPTOR.full_name


def to_proto(value: object, message_type: type[_M]) -> _M:
    """A frozen type as a message.

    Raises:
        TypeError: The two do not fit each other, such as a field that the message lacks.
    """
    return message_type(**_encoded(value, cast("Descriptor", message_type.DESCRIPTOR)))


def from_proto(kind: type[_T], message: Message, **known: Any) -> _T:
    """A message as a frozen type.

    Args:
        kind: The type.
        message: The message.
        known: Fields that are not in the message under their names.

    Raises:
        InvalidSpecError: A field that has no default is missing, or an enum has a value of another release.
        TypeError: The two do not fit each other.
    """
    return cast("_T", _decoded(kind, message, known))


def timestamp(at: float) -> Timestamp:
    """Seconds since the Unix epoch as the contract has them."""
    return _stamp(datetime.fromtimestamp(at, UTC))


def seconds_of(stamp: Timestamp) -> float:
    """A time of the contract as seconds since the Unix epoch."""
    return stamp.seconds + stamp.nanos / 1e9


class _Item(NamedTuple):
    """Both ways of one value."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


class _Field(NamedTuple):
    """A field of a type: what it is in a message, by the message's fields, and back (``_ABSENT``: it is not there)."""

    name: str
    encode: Callable[[Any], dict[str, Any]]
    decode: Callable[[Any], Any]
    is_required: bool


_ABSENT: Any = object()


def _encoded(value: object, descriptor: Descriptor) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in _fields(cast("Any", type(value)), descriptor):
        content = getattr(value, field.name)
        if content is not None:
            found.update(field.encode(content))
    return found


def _decoded(kind: type, message: Message, known: Mapping[str, Any] = MappingProxyType({})) -> object:
    fields = _fields(cast("Any", kind), message.DESCRIPTOR)
    found = {field.name: content for field in fields if (content := field.decode(message)) is not _ABSENT}
    values = {**found, **known}
    for field in fields:
        if field.is_required and field.name not in values:
            raise wrong_field(field.name, "is missing")
    return kind(**values)


@functools.cache
def _fields(kind: Any, descriptor: Descriptor) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(kind)
    found: list[_Field] = []
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if not field.metadata.get("told", True) or typing.get_origin(hint) is Literal:
            continue
        members = [member for member in _members(hint) if member is not types.NoneType]
        if len(members) > 1:
            found.append(_Field(field.name, *_union(members, descriptor), is_required=True))
        else:
            found.append(_field(field, hint, members[0], descriptor))
    return tuple(found)


def _members(hint: object) -> tuple[Any, ...]:
    is_union = typing.get_origin(hint) in {typing.Union, types.UnionType}
    return typing.get_args(hint) if is_union else (hint,)


def _field(field: dataclasses.Field[Any], hint: object, inner: object, descriptor: Descriptor) -> _Field:
    name, is_optional = field.name, inner is not hint
    told = descriptor.fields_by_name.get(name)
    if told is None:
        msg = f"{descriptor.full_name} has no field {name}"
        raise TypeError(msg)
    item = _item(inner, told)
    has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
    absent = None if is_optional and not has_default else _ABSENT
    is_enum = told.enum_type is not None and not told.is_repeated

    def decode(message: Any) -> Any:
        if told.has_presence and not message.HasField(name):
            return absent
        content = getattr(message, name)
        return absent if is_enum and content == 0 else item.decode(content)

    def encode(content: Any) -> dict[str, Any]:
        # Of a oneof, an empty text must not take the place of what is there.
        is_empty = content == "" and told.containing_oneof is not None and not is_optional
        return {} if is_empty else {name: item.encode(content)}

    return _Field(name, encode, decode, is_required=not has_default and not is_optional)


def _union(members: list[Any], descriptor: Descriptor) -> _Item:
    kinds = {_snake(member.__name__): member for member in members}
    told = {member: descriptor.fields_by_name[name] for name, member in kinds.items()}

    def encode(value: Any) -> dict[str, Any]:
        field = told[type(value)]
        return {field.name: _item(type(value), field).encode(value)}

    def decode(message: Any) -> Any:
        there = [name for name in kinds if message.HasField(name)]
        return _decoded(kinds[there[0]], getattr(message, there[0])) if there else _ABSENT

    return _Item(encode, decode)


def _item(hint: Any, told: FieldDescriptor) -> _Item:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if told.message_type is not None and told.message_type.GetOptions().map_entry:
        return _Item(dict, dict) if isinstance(origin, type) and issubclass(origin, Mapping) else _unfit(hint, told)
    if told.is_repeated:
        if origin is not tuple:
            return _unfit(hint, told)
        each = _single(arguments[0], told)
        return _Item(
            lambda values: [each.encode(value) for value in values],
            lambda values: tuple(each.decode(value) for value in values),
        )
    return _single(hint, told)


def _single(hint: Any, told: FieldDescriptor) -> _Item:
    if told.message_type is not None:
        if told.message_type.full_name == _TIMESTAMP:
            return _time(hint)
        return _nested(hint, told.message_type) if dataclasses.is_dataclass(hint) else _unfit(hint, told)
    if told.enum_type is not None:
        is_enum = isinstance(hint, type) and issubclass(hint, enum.Enum)
        return _enum(cast("type[enum.Enum]", hint), told) if is_enum else _unfit(hint, told)
    return _Item(_same, _same) if told.cpp_type in _SCALARS.get(hint, ()) else _unfit(hint, told)


def _same(value: Any) -> Any:
    return value


def _stamp(at: datetime) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(at)
    return stamp


def _nested(kind: Any, descriptor: Descriptor) -> _Item:
    return _Item(lambda value: _encoded(value, descriptor), lambda message: _decoded(kind, message))


def _time(hint: Any) -> _Item:
    if hint is datetime:
        return _Item(_stamp, lambda stamp: stamp.ToDatetime(tzinfo=UTC))
    return _Item(timestamp, seconds_of)


def _enum(kind: type[enum.Enum], told: FieldDescriptor) -> _Item:
    descriptor = cast("EnumDescriptor", told.enum_type)
    prefix = _snake(descriptor.name).upper()
    numbers = {member: descriptor.values_by_name[f"{prefix}_{member.name}"].number for member in kind}
    members = {number: member for member, number in numbers.items()}

    def decode(number: int) -> enum.Enum:
        if number not in members:
            known = ", ".join(member.name.lower() for member in kind)
            raise wrong_field(
                told.name,
                f"{number} is no {descriptor.name} that this release of Tiercel knows, which are {known}; "
                "where client and broker are of two releases, upgrade the older one",
            )
        return members[number]

    return _Item(numbers.__getitem__, decode)


def _unfit(hint: object, told: FieldDescriptor) -> _Item:
    msg = f"{hint!r} does not fit {told.full_name}"
    raise TypeError(msg)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
