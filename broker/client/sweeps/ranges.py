"""The range of a parameter, from what people write."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from tiercel.core.errors import wrong_field

MAX_CHOICES = 64
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_FORM = "write NAME=uniform:LOW:HIGH, NAME=loguniform:LOW:HIGH, NAME=int:LOW:HIGH or NAME=cat:A,B"


@dataclass(frozen=True, slots=True)
class Numbers:
    """All numbers from ``low`` to ``high``, both included; ``log``: small ones as closely as large ones."""

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True, slots=True)
class Integers:
    """All integers from ``low`` to ``high``, both included."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Choices:
    """One of these words."""

    words: tuple[str, ...]


Range = Numbers | Integers | Choices


def read_range(text: str) -> tuple[str, Range]:
    """The name and the range of a parameter.

    Args:
        text: Such as ``lr=loguniform:1e-4:1e-1``, ``width=int:16:256`` or ``act=cat:relu,gelu``.

    Raises:
        InvalidSpecError: It is none of these forms, or has no values.
    """
    name, _, written = text.partition("=")
    kind, _, values = written.partition(":")
    if not _NAME.fullmatch(name) or not values:
        raise wrong_field("param", f"{text[:100]!r} is no parameter with a range; {_FORM}")
    if kind == "cat":
        return name, _choices(name, values)
    low, _, high = values.partition(":")
    try:
        if kind == "int":
            return name, _with_values(name, Integers(int(low), int(high)))
        if kind in {"uniform", "loguniform"}:
            return name, _with_values(name, Numbers(float(low), float(high), kind == "loguniform"))
    except ValueError:
        raise wrong_field("param", f"{name}: {values[:100]!r} is not LOW:HIGH in numbers; {_FORM}") from None
    raise wrong_field("param", f"{name}: {kind[:40]!r} is no kind of range; {_FORM}")


def _choices(name: str, values: str) -> Choices:
    words = tuple(values.split(","))
    if not all(words) or len(set(words)) < len(words) or len(words) > MAX_CHOICES:
        raise wrong_field("param", f"{name}: needs up to {MAX_CHOICES} words, none empty or twice, with commas between")
    return Choices(words)


def _with_values(name: str, found: Numbers | Integers) -> Numbers | Integers:
    if not (math.isfinite(found.low) and math.isfinite(found.high) and found.low < found.high):
        raise wrong_field("param", f"{name}: from {found.low:g} to {found.high:g} there is nothing; give LOW < HIGH")
    if isinstance(found, Numbers) and found.log and found.low <= 0:
        raise wrong_field("param", f"{name}: a logarithm needs numbers above 0; give a larger LOW, or uniform")
    return found


def arguments_of(parameters: dict[str, float | int | str]) -> tuple[str, ...]:
    """The arguments of a script that say these parameters; a value that looks like an option is joined to its name."""
    words: list[str] = []
    for name, value in parameters.items():
        text = str(value)
        words += [f"--{name}={text}"] if text.startswith("-") else [f"--{name}", text]
    return tuple(words)
