"""What a job's spec says about the environment of its program, from what people write."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tiercel.core.errors import wrong_field


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
