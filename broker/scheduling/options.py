"""From a policy's options, which may be text, to its settings."""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Mapping
from typing import TypeVar

from tiercel.core.errors import InvalidSpecError

Option = str | float | bool
Options = Mapping[str, Option]

_SettingsT = TypeVar("_SettingsT")
_TRUTH = types.MappingProxyType({"true": True, "false": False})


def settings_from(settings_type: type[_SettingsT], options: Options) -> _SettingsT:
    """Make a policy's settings (a dataclass) from options.

    Raises:
        InvalidSpecError: An option is unknown or its value makes no sense; names it.
    """
    hints = typing.get_type_hints(settings_type)
    for name in options:
        if name not in hints:
            known = ", ".join(sorted(hints)) or "none"
            raise InvalidSpecError(f"The policy has no option {name!r}; its options: {known}.", field=f"policy.{name}")
    values = {name: _convert(name, value, hints[name]) for name, value in options.items()}
    try:
        return settings_type(**values)
    except ValueError as error:
        raise InvalidSpecError(f"The policy's options do not fit: {error}.", field="policy") from error


def _convert(name: str, value: Option, hint: object) -> object:
    target = next((part for part in typing.get_args(hint) if part is not types.NoneType), hint)
    try:
        if isinstance(target, type) and issubclass(target, enum.Enum):
            return target(value)
        if target is bool:
            return _TRUTH[str(value).lower()]
        if target in {int, float}:
            number = float(value)
            return _whole(number) if target is int else number
    except (ValueError, OverflowError, KeyError) as error:
        expected = _expectation(target)
        raise InvalidSpecError(
            f"The policy's option {name} is {value!r}; {expected}.", field=f"policy.{name}"
        ) from error
    return value


def _whole(number: float) -> int:
    if number != int(number):
        raise ValueError(number)
    return int(number)


def _expectation(target: object) -> str:
    if isinstance(target, type) and issubclass(target, enum.Enum):
        return f"choose one of {', '.join(str(member.value) for member in target)}"
    if target is bool:
        return "it must be true or false"
    return "it must be a whole number" if target is int else "it must be a number"
