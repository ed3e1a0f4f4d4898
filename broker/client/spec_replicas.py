"""What people write in a spec about replicas: a number, or ``auto``."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from tiercel.core.jobs import AUTO_REPLICAS
from tiercel.core.validation import MAX_REPLICAS


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
