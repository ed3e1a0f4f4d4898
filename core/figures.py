"""Figures as people read them: one rule for parts and metrics in every sentence, table and picture.

The dashboard's ``format.js`` follows the same rule; ``testing/figures.py`` has the values that both are held to.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decimal import Decimal

_DIGITS = 4
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
# A double has no more than so many that tell it from another.
_MOST_DIGITS = 17
# From here on, and below a thousandth, a power of ten says more than digits.
_HUGE, _TINY = 1e12, 1e-3


def percent(part: float) -> str:
    """A part as whole percent: ``0.489`` is ``49 %``; what is neither none nor all is never told as such."""
    whole = _rounded(part * 100, 0)
    if part > 0 and whole == 0:
        return "< 1 %"
    return "> 99 %" if part < 1 and whole == 100 else f"{whole} %"


def number(value: float, digits: int = _DIGITS) -> str:
    """A metric or another figure of no special kind; what is nearly 1, as an accuracy, is never told as 1.

    Args:
        value: The figure.
        digits: How many significant digits it has; more where it is told beside another, see :func:`compared`.
    """
    while (told := _in_digits(value, digits)) in {"1", "-1"} and abs(value) < 1 and digits < _MOST_DIGITS:
        digits += 1
    return told


def compared(value: float, other: float) -> tuple[str, str]:
    """Two figures with as few digits as show which one is larger; alike only if they are."""
    digits = _DIGITS
    while value != other and digits < _MOST_DIGITS and number(value, digits) == number(other, digits):
        digits += 1
    return number(value, digits), number(other, digits)


def size(count: float) -> str:
    """A number of bytes in three digits: ``1536`` is ``1.5 KiB``."""
    unit = 0
    while count >= 999.5 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{_in_digits(count, 3)} {_UNITS[unit]}"


def plural(count: float, what: str) -> str:
    """How many of something there are."""
    return f"{number(count)} {what}{'' if count == 1 else 's'}"


def _in_digits(value: float, digits: int) -> str:
    if not math.isfinite(value) or value == 0:
        return f"{value:g}".removeprefix("-" if value == 0 else "")
    rounded = _significant(value, digits)
    if not _TINY <= abs(float(rounded)) < _HUGE:
        mantissa = rounded.scaleb(-rounded.adjusted())
        return f"{_short(f'{mantissa:f}')}e{rounded.adjusted():+d}"
    if abs(rounded) >= 1000:
        return _short(f"{_rounded(value, max(0, digits - 1 - rounded.adjusted())):,f}")
    return _short(repr(float(rounded)))


def _significant(value: float, digits: int) -> Decimal:
    from decimal import Decimal

    return _rounded(value, digits - 1 - Decimal(value).adjusted())


def _rounded(value: float, places: int) -> Decimal:
    """Halves away from zero, as JavaScript does; imported here, as most commands tell no figure."""
    from decimal import ROUND_HALF_UP, Decimal

    return Decimal(value).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)


def _short(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
