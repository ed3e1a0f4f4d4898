"""Calls for tests of what decides over them; nothing is run."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from testing import onnx_models
from tiercel.core.errors import TiercelError
from tiercel.serving.dispatch.call import Call
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.runtime.engine import Session
from tiercel.serving.tensors import Array


class NoteCall(Call):
    """Notes what becomes of it."""

    outcome: list[Array] | TiercelError | None = None
    answers = 0

    def answer(self, outputs: list[Array], now: float) -> None:
        self.outcome = outputs
        self.answers += 1

    def fail(self, error: TiercelError, now: float) -> None:
        self.outcome = error
        self.answers += 1


@functools.cache
def session() -> Session:
    """Adds one; x and y are FP32 [n, 4]."""
    return Session(onnx_models.plus(1.0))


@functools.cache
def version(name: str) -> LoadedVersion:
    """A version of a model of this name; the same one for the same name."""
    return LoadedVersion(name, 1, session())


def call_of(
    name: str,
    *,
    key: Any = "key",
    rows: int = 1,
    max_rows: int = 8,
    begin: float = 0.0,
    deadline: float = math.inf,
    priority: int = 0,
    value: float = 0.0,
) -> NoteCall:
    """A call whose input is ``value`` all over."""
    feeds = {"x": np.full((rows, 4), value, np.float32)}
    elements = 4 * rows
    return NoteCall(
        version(name), session(), feeds, ("y",), key, max_rows, rows, elements, 4 * elements, begin, deadline, priority
    )
