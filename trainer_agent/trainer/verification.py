"""Whether ONNX Runtime answers with an exported model what the framework answers with the original."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tiercel.core.figures import percent
from tiercel.core.onnx_signature import MAX_TENSORS
from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.trainer.frames import in_parts
from tiercel.trainer_agent.trainer.samples import Samples
from tiercel.trainer_agent.trainer.signature import Array, Batch, Prediction, as_array, unpack

# An answer may differ from the framework's by ABSOLUTE_TOLERANCE + RELATIVE_TOLERANCE * |the framework's answer|. The
# two order their float32 sums differently: healthy exports differ by about 1e-6, broken ones by far more than this.
RELATIVE_TOLERANCE = 1e-3
ABSOLUTE_TOLERANCE = 1e-4
# Of answers that are whole numbers or texts, such as classes: what may differ for made-up rows, which lie anywhere.
DRAWN_SHARE_DIFFERENT = 0.1
# And for real ones: where two scores are nearly one, rounding decides.
SHARE_DIFFERENT = 0.01
# Of ONNX Runtime's log; what goes wrong is raised as well.
_ONLY_FATAL = 4
_CPU, _GPU = "CPUExecutionProvider", "CUDAExecutionProvider"
_TERMINAL_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_TYPES = {
    "float": np.float32, "double": np.float64, "float16": np.float16, "string": np.str_, "bool": np.bool_,
    "int8": np.int8, "int16": np.int16, "int32": np.int32, "int64": np.int64,
    "uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32, "uint64": np.uint64,
}  # fmt: skip

Answers = dict[str, Array]


@dataclass(frozen=True, slots=True)
class Compared:
    """What an exported model was compared on."""

    rows: int  # how many
    missed: tuple[str, ...]  # what could not be compared, in words

    @property
    def summary(self) -> str:
        """For the job's log."""
        return f"compared on {self.rows} rows" + (f", not on {', '.join(self.missed)}" if self.missed else "")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the original was asked, and what it said."""

    batch: Batch  # rows
    answers: Answers | str  # by output; a text says why there are none, which only made-up rows may lack
    difference: str = ""  # how made-up rows differ from real ones; empty for real ones


class OnnxModel:
    """An ONNX file in ONNX Runtime, on the CPU unless somebody says otherwise.

    Args:
        path: The file; it is checked against the ONNX standard first.
        threads: How many may compute an answer.
        input_names: In the order in which the original takes them; None for the file's own order.
        accelerated: Compute on an NVIDIA GPU, where ONNX Runtime has one here.

    Raises:
        DeliveryFailedError: If the file is malformed, ONNX Runtime cannot load it, or it takes or gives what is no
            tensor.
    """

    def __init__(
        self, path: Path, threads: int, input_names: Sequence[str] | None = None, *, accelerated: bool = False
    ) -> None:
        import onnx.checker  # costs a script 0.1 to 0.3 s, and only jobs that reach a tier need it
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = _ONLY_FATAL
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            onnx.checker.check_model(str(path), full_check=True)
            wanted = (_GPU, _CPU) if accelerated else (_CPU,)
            providers = [each for each in wanted if each in onnxruntime.get_available_providers()]
            self._session = onnxruntime.InferenceSession(str(path), options, providers=providers)
        except Exception as error:  # both raise types of their own that are no public names
            message = f"the ONNX file is not valid: {first_line(error)}"
            raise DeliveryFailedError(message) from error
        self._run_options = onnxruntime.RunOptions()
        self._run_options.log_severity_level = _ONLY_FATAL
        self._types = {each.name: _type_of(each) for each in self._session.get_inputs()}
        for each in self._session.get_outputs():
            _type_of(each)
        self.input_names = tuple(self._types) if input_names is None else tuple(input_names)
        self.output_names = tuple(str(output.name) for output in self._session.get_outputs())
        for count, what in ((len(self._types), "inputs"), (len(self.output_names), "outputs")):
            if count > MAX_TENSORS:
                message = (
                    f"the model has {count} {what}, and {MAX_TENSORS} are served at most: put those that are alike "
                    "into one, such as by torch.cat"
                )
                raise DeliveryFailedError(message)

    @property
    def is_accelerated(self) -> bool:
        """Whether it computes on a GPU."""
        return _GPU in self._session.get_providers()

    @property
    def taken(self) -> tuple[str, ...]:
        """Inputs of the file, which lacks those that the model ignores."""
        return tuple(self._types)

    def predict(self, *arrays: Any) -> Prediction:
        """Ask the model: one array an input, one array or a tuple of them out."""
        return unpack(self.run(arrays))

    def run(self, arrays: Sequence[Any]) -> list[Array]:
        """All outputs for one batch; arrays are cast to the file's types.

        Raises:
            ValueError: If the number of arrays is not that of the original's inputs.
        """
        return self.answers(self.feeds(arrays))

    def feeds(self, arrays: Sequence[Any]) -> dict[str, Array]:
        """Arrays by input, cast to the file's types.

        Raises:
            ValueError: If their number is not that of the original's inputs.
        """
        arrays = in_parts(arrays, self.input_names)
        if len(arrays) != len(self.input_names):
            names = ", ".join(self.input_names)
            raise ValueError(f"the model takes {len(self.input_names)} inputs ({names}), got {len(arrays)}")
        return self.feeds_of(dict(zip(self.input_names, arrays, strict=True)))

    def feeds_of(self, arrays: Mapping[str, Any]) -> dict[str, Array]:
        """The same of arrays by name; what the file ignores is left out."""
        return {name: _feed(array, self._types[name]) for name, array in arrays.items() if name in self._types}

    def answers(self, feeds: Mapping[str, Array]) -> list[Array]:
        """All outputs for what :meth:`feeds` made."""
        answers: list[Array] = [as_array(each) for each in self._session.run(None, feeds, self._run_options)]
        return answers


def ask(samples: Samples, answer: Callable[[Batch], Answers]) -> Iterator[Asked]:
    """Ask the original: real rows in batches of several sizes, then rows drawn to differ from those."""
    for batch in samples.batches():
        yield Asked(batch, answer(batch))
    for drawn in samples.drawn():
        try:
            answers: Answers | str = answer(drawn.batch)
        except Exception as error:  # a script's own model may refuse what no application sends
            answers = first_line(error, limit=80)
        yield Asked(drawn.batch, answers, drawn.difference)


def check_same_answers(asked: Iterable[Asked], exported: OnnxModel, framework: str, missed: Sequence[str]) -> Compared:
    """Compare the two.

    Returns:
        What was compared, and what could not be.

    Raises:
        DeliveryFailedError: If they differ by more than the tolerance; says where and by how much.
    """
    rows, left_out = 0, list[str]()
    answered, different = Counter[str](), Counter[str]()
    for each in asked:
        if isinstance(each.answers, str):
            left_out.append(f"rows {each.difference} ({each.answers})")
            continue
        found = dict(zip(exported.output_names, _answers_of(exported, each.batch), strict=True))
        for name, wanted in each.answers.items():
            if each.difference:
                _check_alike(name, wanted, found[name], each.difference, framework)
            else:
                _check_same_array(name, wanted, found[name], framework)
                if not is_real(wanted):
                    answered[name] += wanted.size
                    different[name] += int(np.sum(wanted != found[name]))
        rows += each.batch[0].shape[0]
    _check_labels(answered, different, framework)
    return Compared(rows, (*left_out, *missed))


def is_real(answers: Array) -> bool:
    """Whether answers are numbers that may be a little off, and not labels or texts."""
    return np.issubdtype(answers.dtype, np.floating)


def first_line(error: BaseException, *, limit: int = 300) -> str:
    """The first line that an exception says, with its type; a tenant gets no page of stack."""
    lines = [line.strip() for line in _TERMINAL_COLOURS.sub("", str(error)).splitlines() if line.strip()]
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _type_of(tensor: Any) -> type:
    """NumPy's type for an input or output of a session."""
    kind = str(tensor.type)
    found = _TYPES.get(kind.removeprefix("tensor(").removesuffix(")"))
    if found is not None:
        return found
    message = f"the model's {tensor.name} is a {kind}, and only tensors of numbers or texts can be served"
    raise DeliveryFailedError(message)


def _feed(array: Any, kind: type) -> Array:
    given = as_array(array)
    return given.astype(np.object_) if kind is np.str_ else given.astype(kind, copy=False)


def _answers_of(exported: OnnxModel, batch: Batch) -> list[Array]:
    try:
        return exported.run(batch)
    except Exception as error:  # ONNX Runtime's exceptions share no public base
        message = f"ONNX Runtime fails on a batch of {batch[0].shape[0]}: {first_line(error)}"
        raise DeliveryFailedError(message) from error


def _check_labels(answered: Counter[str], different: Counter[str], framework: str) -> None:
    for name, count in different.items():
        if count > SHARE_DIFFERENT * answered[name]:
            message = (
                f"ONNX Runtime and {framework} disagree on {name} for {count} of {answered[name]} answers; "
                "where scores are nearly alike, hand over a model that gives the scores"
            )
            raise DeliveryFailedError(message)


def _check_alike(name: str, wanted: Array, got: Array, which: str, framework: str) -> None:
    """Compare answers to made-up rows: near its limits a model rounds differently, but it takes the same way."""
    if wanted.shape != got.shape:
        _check_same_array(name, wanted, got, framework)
    if not is_real(wanted):
        differs = float(np.mean(wanted != got)) if wanted.size else 0.0
        if differs > DRAWN_SHARE_DIFFERENT:
            message = f"ONNX Runtime and {framework} disagree on {name} for {percent(differs)} of the rows {which}"
            raise DeliveryFailedError(message)
        return
    finite = np.isfinite(wanted)
    largest = float(np.max(np.abs(wanted[finite]), initial=0.0))
    allowed = ABSOLUTE_TOLERANCE + RELATIVE_TOLERANCE * largest
    difference = float(np.max(np.abs(got[finite].astype(np.float64) - wanted[finite]), initial=0.0))
    if math.isnan(difference) or difference > allowed:
        message = (
            f"ONNX Runtime and {framework} disagree on {name} by up to {difference:.3g} for rows {which} "
            f"(allowed: {allowed:.3g}); does the model decide by the numbers that it is given?"
        )
        raise DeliveryFailedError(message)


def _check_same_array(name: str, wanted: Array, got: Array, framework: str) -> None:
    if wanted.shape != got.shape:
        message = f"ONNX Runtime returns the shape {got.shape} for {name} where {framework} returns {wanted.shape}"
        raise DeliveryFailedError(message)
    if not is_real(wanted):
        return  # counted over all rows
    if alike(got, wanted):
        return
    difference = float(np.nanmax(np.abs(got.astype(np.float64) - wanted.astype(np.float64))))
    message = (
        f"ONNX Runtime and {framework} disagree on {name} by up to {difference:.3g} for a batch of {wanted.shape[0]} "
        f"(allowed: {ABSOLUTE_TOLERANCE:g} + {RELATIVE_TOLERANCE:g} of the value)"
    )
    raise DeliveryFailedError(message)


def alike(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two answers to the same rows differ by no more than what is allowed."""
    same_shape = first.shape == second.shape
    return same_shape and np.allclose(first, second, rtol=RELATIVE_TOLERANCE, atol=ABSOLUTE_TOLERANCE, equal_nan=True)
