"""Which outputs of an ONNX file the answers of a script's own ``predict`` stand for."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.trainer.signature import Array, as_array
from tiercel.trainer_agent.trainer.verification import Answers

_KINDS = {"i": "whole", "u": "whole", "f": "real", "U": "text", "S": "text", "b": "bool"}


@dataclass(frozen=True, slots=True)
class Binding:
    """How answers of the script and outputs of the file belong together."""

    outputs: dict[Hashable, str]  # by the key of the script's answer: the name of the output
    flat: frozenset[Hashable]  # keys of answers that have no axis of one column, which the file gives
    form: type | None  # ``dict``, ``tuple``, or ``None`` for a single array

    @classmethod
    def of(cls, answer: Any, found: Answers) -> Binding:
        """Find out: by name in a mapping, else by position where there are as many, else by kind and shape.

        Raises:
            DeliveryFailedError: It cannot be told.
        """
        form = _form(answer)
        given = _parts(answer)
        if form is dict:
            outputs = {key: str(key) for key in given}
        elif len(given) == len(found):
            outputs = dict(zip(given, found, strict=True))
        else:
            outputs = {key: _alike(array, found) for key, array in given.items()}
        if not set(outputs.values()) <= found.keys() or len(set(outputs.values())) < len(outputs):
            raise DeliveryFailedError(_unclear(found))
        flat = frozenset(key for key, array in given.items() if array.ndim + 1 == found[outputs[key]].ndim)
        return cls(outputs, flat, form)

    def answers(self, answer: Any) -> Answers:
        """What the script said, by output and in the file's shape."""
        given = _parts(answer)
        return {self.outputs[key]: array[..., None] if key in self.flat else array for key, array in given.items()}

    def as_script(self, found: Answers) -> Any:
        """What the file says, in the form in which the script's ``predict`` says it."""
        arrays = {
            key: found[name][..., 0] if key in self.flat and found[name].shape[-1] == 1 else found[name]
            for key, name in self.outputs.items()
        }
        if self.form is None:
            return next(iter(arrays.values()))
        return arrays if self.form is dict else tuple(arrays.values())


def _form(answer: Any) -> type | None:
    return dict if isinstance(answer, Mapping) else tuple if isinstance(answer, tuple) else None


def _parts(answer: Any) -> dict[Hashable, Array]:
    if isinstance(answer, Mapping):
        return {key: as_array(value) for key, value in answer.items()}
    values = answer if isinstance(answer, tuple) else (answer,)
    return {index: as_array(value) for index, value in enumerate(values)}


def _alike(array: Array, found: Answers) -> str:
    fits = [name for name, each in found.items() if each.shape in (array.shape, (*array.shape, 1))]
    same = [name for name in fits if _KINDS.get(found[name].dtype.kind) == _KINDS.get(array.dtype.kind)]
    if len(same or fits) != 1:
        raise DeliveryFailedError(_unclear(found))
    return (same or fits)[0]


def _unclear(found: Answers) -> str:
    shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in found.items())
    return f"predict() does not say which outputs it stands for; return a mapping by their names. The file has {shapes}"
