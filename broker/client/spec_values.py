"""What people write in a spec otherwise than it is kept: variables, numbers of replicas, times and retries."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from tiercel.core.durations import seconds_in
from tiercel.core.errors import wrong_field
from tiercel.core.jobs import AUTO_REPLICAS
from tiercel.core.validation import MAX_REPLICAS


def environment_of(written: object) -> object:
    """The variables of ``env``: a mapping of names to values, or names that are taken from the caller's environment.

    Raises:
        InvalidSpecError: A name is not set here, or something is no value.
    """
    if isinstance(written, Mapping):
        return {str(name): _text(str(name), value) for name, value in written.items()}
    if isinstance(written, list | tuple):
        return {str(name): _taken(str(name)) for name in written}
    raise wrong_field("env", "is neither names with values, such as {SEED: 7}, nor a list of names to take from here")


def _text(name: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise wrong_field(f"env.{name}", f"{value!r} is no text; write it in quotation marks")
    return str(value)


def _taken(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise wrong_field(
            "env", f"{name} is not set here; set it before you submit, or write its value: {{{name}: value}}"
        )
    return value


def _replicas(value: object) -> object:
    if value == "auto":
        return AUTO_REPLICAS
    if (
        isinstance(value, bool)
        or (isinstance(value, str) and not value.isdecimal())
        or str(value) == str(AUTO_REPLICAS)
    ):
        words = {"written": repr(value)[:100], "most": MAX_REPLICAS}
        raise PydanticCustomError("replicas", "{written} is neither a number of nodes from 1 to {most} nor auto", words)
    return value


Replicas = Annotated[int, BeforeValidator(_replicas)]
"""A field that is a number of replicas, or ``auto``."""


def _below(value: object) -> object:
    return None if value == "promise" else value


Below = Annotated[float | None, BeforeValidator(_below)]
"""A field that is an accuracy, or ``promise``."""


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
