"""What people write in a spec about runs over time: times, and retries as a number or a mapping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from tiercel.core.durations import seconds_in
from tiercel.core.errors import wrong_field


def _seconds(value: object) -> object:
    """A time as people write it, in seconds."""
    if not isinstance(value, str):
        return value
    try:
        return seconds_in(value)
    except ValueError as error:
        raise PydanticCustomError("time", "{why}", {"why": str(error)}) from None


Seconds = Annotated[float, BeforeValidator(_seconds)]
"""A field that is a time."""


def with_retries_as_mapping(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a spec with a number under ``retries`` as the mapping that it stands for, to be merged."""
    retries = values.get("retries")
    if retries is None or isinstance(retries, Mapping):
        return values
    return {**values, "retries": {"count": retries}}


def with_retries_spread(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a spec with a mapping under ``retries`` as fields ``retries``, ``retries.back_off`` and so on.

    Raises:
        InvalidSpecError: The mapping does not say how many there are.
    """
    retries = values.get("retries")
    if not isinstance(retries, Mapping):
        return values
    if "count" not in retries:
        raise wrong_field(
            "retries.count", "is missing; give how often a script that fails is started again, such as {count: 3}"
        )
    spread = {f"retries.{name}": value for name, value in retries.items() if name != "count"}
    return {**values, "retries": retries["count"], **spread}
