"""How often recent answers were right, by what applications say of them afterwards. Pure; on the event loop only.

Each request is counted once, with the version that answered it. Of each version the last rows make a window.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from tiercel.core.errors import InvalidRequestError, NotFoundError
from tiercel.core.feedback import wilson
from tiercel.serving.explaining.recent_requests import Answered, RecentRequests
from tiercel.serving.tensors import Array

WINDOW_ROWS: Final = 1000
# Of so many versions, in all and of one model, those that were told of last: a model's own older ones go first.
MOST_VERSIONS: Final = 1024
MOST_OF_MODEL: Final = 32
MOST_ROWS: Final = 64
_MOST_CHARACTERS: Final = 128


def answered(output: Array, most_rows: int = MOST_ROWS) -> Answered | None:
    """What an output says of each row: its class, label or value. None where that is not kept.

    Args:
        output: Of shape [rows, classes] for classes, [rows] or [rows, 1] for labels and values.
        most_rows: Of more rows nothing is kept.
    """
    if not 1 <= output.ndim <= 2 or not 0 < len(output) <= most_rows or not output.size:
        return None
    kind = output.dtype.kind
    if output.ndim == 2 and output.shape[1] > 1:
        return (output.shape[1], *output.argmax(axis=1).tolist()) if kind in "iuf" else None
    labels = output.reshape(-1).tolist()
    if kind == "O" and not all(isinstance(each, str) and len(each) <= _MOST_CHARACTERS for each in labels):
        return None
    return (0, *labels) if kind in "iubfO" else None


@dataclass(slots=True)
class Window:
    """The last rows that feedback came on, of one version."""

    is_of_values: bool  # whether it is of values
    # Of each: for classes and labels whether it was right, for values how far off.
    rows: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW_ROWS))
    right: int = 0  # of them, for classes and labels
    count: int = 0  # rows since the server began

    def add(self, row: float) -> None:
        """Count one more row."""
        if not self.is_of_values:
            self.right += int(row) - (int(self.rows[0]) if len(self.rows) == WINDOW_ROWS else 0)
        self.rows.append(row)
        self.count += 1

    def as_json(self) -> dict[str, Any]:
        """For the interface."""
        size = len(self.rows)
        if self.is_of_values:
            return {"rows": size, "count": self.count, "mean_absolute_error": math.fsum(self.rows) / size}
        low, high = wilson(self.right, size)
        return {"rows": size, "count": self.count, "accuracy": self.right / size, "low": low, "high": high}


class Feedback:
    """Takes feedback on requests that are remembered, and on answers."""

    def __init__(self, recent: RecentRequests) -> None:
        self._recent = recent
        self._windows: dict[tuple[str, str, str], Window] = {}  # by model, variant and version, told last is last

    def take(self, model: str, request_id: str, label: object) -> None:
        """Count what the truth was.

        Args:
            model: Whom the request asked.
            request_id: Its id.
            label: For each row a class's number, a label or a value, as the model gives; of one row without a list.

        Raises:
            NotFoundError: Nobody knows the request here, or knows it any more.
            InvalidRequestError: It makes no sense for that request, or feedback on it came before.
        """
        found = self._recent.find(model, request_id)
        if found is None:
            raise NotFoundError(f"'{request_id[:128]}': no request with this id is known (any more)")
        if found.answer is None:
            raise InvalidRequestError(
                f"'{request_id}': nothing is kept to compare with: the request failed, or its first output is not of "
                f"shape [rows], [rows, 1] or [rows, classes] with {MOST_ROWS} rows at most"
            )
        if not found.answer:
            raise InvalidRequestError(f"'{request_id}': feedback on this request came before; it counts once")
        try:
            self.count(model, found.variant, found.version, found.answer, label)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"'{request_id}': {error.message}") from error
        self._recent.forget_answer(model, request_id)

    def count(self, model: str, variant: str, version: str, answer: Answered, label: object) -> None:
        """Count how right an answer is.

        Args:
            model: Who was asked.
            variant: Who answered, of an endpoint with variants; else empty.
            version: That answered.
            answer: What it said.
            label: As for :meth:`take`.

        Raises:
            InvalidRequestError: It makes no sense for that answer.
        """
        classes, *said = answer
        given = label if isinstance(label, list) else [label]
        if len(given) != len(said):
            raise InvalidRequestError(f"label must have an entry for each of its {len(said)} rows")
        is_of_values = any(type(each) is float for each in said)
        for each, row in zip(given, said, strict=True):
            _check(each, row, classes)
        window = self._window(model, variant, version, is_of_values)
        for each, row in zip(given, said, strict=True):
            window.add(abs(each - row) if is_of_values else each == row)

    def forget(self, model: str) -> None:
        """Drop all that was said of a model, and the requests that feedback on it may still come for."""
        self._windows = {key: window for key, window in self._windows.items() if key[0] != model}
        self._recent.forget(model)

    def of(self, model: str) -> list[dict[str, Any]]:
        """What is known of each version of a model, the one that was told of last first."""
        return [
            {"variant": variant, "version": version} | window.as_json()
            for (name, variant, version), window in reversed(self._windows.items())
            if name == model
        ]

    def accuracies(self) -> list[dict[str, Any]]:
        """Of each version of each model that answers with classes or labels: its rows, and how many were right."""
        return [
            {"model": model, "variant": variant, "version": version, "right": window.right}
            | {name: value for name, value in window.as_json().items() if name != "count"}
            for (model, variant, version), window in self._windows.items()
            if not window.is_of_values
        ]

    def _window(self, model: str, variant: str, version: str, is_of_values: bool) -> Window:
        key = (model, variant, version)
        window = self._windows.pop(key, None)
        is_new = window is None
        if window is None or window.is_of_values is not is_of_values:
            window = Window(is_of_values)
        own = [each for each in self._windows if each[0] == model] if is_new else []
        if len(own) >= MOST_OF_MODEL:
            del self._windows[own[0]]
        elif len(self._windows) >= MOST_VERSIONS:
            del self._windows[next(iter(self._windows))]
        self._windows[key] = window
        return window


def _check(given: Any, said: Any, classes: Any) -> None:
    """Raise unless this may be the truth of a row."""
    if type(said) is float:
        if type(given) not in (int, float) or not abs(given) <= 1e300:
            raise InvalidRequestError("label must be a finite number")
        if not math.isfinite(said):
            raise InvalidRequestError("label cannot be compared: the model answered no finite number")
    elif type(given) is not type(said):
        wanted = {int: "a whole number", bool: "true or false", str: "a text"}[type(said)]
        raise InvalidRequestError(f"label must be {wanted}, as the model answers")
    elif classes and not 0 <= given < classes:
        raise InvalidRequestError(f"label must be a class's number, 0 to {classes - 1}")
