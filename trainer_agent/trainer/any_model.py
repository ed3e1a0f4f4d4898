"""A model of any framework, which the script asks, turns into ONNX, saves and restores itself."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.trainer.answers import Binding
from tiercel.trainer_agent.trainer.checkpoints import State
from tiercel.trainer_agent.trainer.onnx_files import OnnxContent, OnnxSource, content_of, write_checked
from tiercel.trainer_agent.trainer.pickles import PickleFormat
from tiercel.trainer_agent.trainer.samples import KEPT_ROWS, REFERENCE_ROWS, Samples
from tiercel.trainer_agent.trainer.signature import Array, Batch, ExampleInput, Predict, Prediction, Signature, unpack
from tiercel.trainer_agent.trainer.trained import Exported, Trained
from tiercel.trainer_agent.trainer.verification import (
    Asked,
    Compared,
    OnnxModel,
    check_same_answers,
    first_line,
    is_real,
)

_OWN = "the framework"
_NOBODY_ANSWERED = "the framework's own answers, which nobody gave: predict=, or outputs= of deliver()"


@dataclass(frozen=True, slots=True)
class _Question:
    """Rows, and what the script's own predict said of them; None where nobody asked."""

    batch: Batch
    answer: Any


@dataclass(frozen=True, slots=True)
class OnnxCopy:
    """A model as it was at a report."""

    content: OnnxContent = field(default_factory=OnnxContent)  # the ONNX file
    input_names: tuple[str, ...] | None = None  # as the script calls its inputs; None for the file's own order
    questions: tuple[_Question, ...] = ()  # rows, with what the framework answers; the first are the reference
    error: str = ""  # why there is none, in words; else empty
    frozen: tuple[Any, ...] = ()  # what the content is still to be made of


@dataclass(frozen=True, slots=True)
class Offer:
    """What the script hands over by itself."""

    onnx: OnnxSource
    inputs: ExampleInput | None
    outputs: Any


class AnyModel(Trained):
    """A model that only the script knows.

    Args:
        export: Returns the model as it is now, as ONNX; None where the script calls ``deliver``.
        predict: Asks the model as it is now, arrays in and arrays out; None for a script without.
        example_input: One batch of input; None to take the first that ``predict`` is asked about.
        save: Returns what the next run goes on from: anything that can be pickled.
    """

    checkpoint_format = PickleFormat()

    def __init__(
        self,
        export: Callable[[], OnnxSource] | None = None,
        predict: Predict | None = None,
        example_input: ExampleInput | None = None,
        save: Callable[[], Any] | None = None,
    ) -> None:
        self._export, self._predict, self._save = export, predict, save
        self._rows = None if example_input is None else _Rows(example_input)
        self._offer: Offer | None = None
        self._restored: tuple[Any, ...] = ()
        self._threads = 1
        self._folder: Path | None = None

    @property
    def has_model(self) -> bool:
        """See :class:`Trained`."""
        return self._export is not None or self._offer is not None

    @property
    def keeping_exports(self) -> bool:
        """See :class:`Trained`; not where the script hands over what it has exported."""
        return self._offer is None

    def predict(self, arrays: tuple[Any, ...]) -> Any:
        """As the script's own predict."""
        if self._predict is None:
            raise TypeError("connect() was given no predict=, so that job.predict() has nobody to ask")
        self._rows = self._rows or _Rows(arrays)
        self._rows.samples.remember(arrays)
        return self._predict(*arrays)

    def restored(self, otherwise: Any) -> Any:
        """See :class:`Trained`."""
        return self._restored[0] if self._restored else otherwise

    @contextlib.contextmanager
    def offering(self, onnx: OnnxSource, inputs: ExampleInput | None, outputs: Any) -> Iterator[None]:
        """See :class:`Trained`."""
        if isinstance(onnx, str | os.PathLike) and not Path(onnx).exists():
            raise FileNotFoundError(f"deliver(): there is no file {os.fspath(onnx)}")
        self._offer = Offer(onnx, inputs, outputs)
        try:
            yield
        finally:
            self._offer = None

    def keep(self) -> OnnxCopy:
        """The ONNX file, with what the framework answers at this moment."""
        try:
            return self._copy(self._offer)
        except DeliveryFailedError as error:
            return OnnxCopy(error=error.message)
        except Exception as error:  # export and predict are the script's and may raise anything
            return OnnxCopy(error=f"export() or predict() fails: {first_line(error)}")

    def export(self, copy: OnnxCopy, path: Path) -> Exported:
        """See :class:`Trained`."""
        if copy.error:
            raise DeliveryFailedError(copy.error)
        write_checked(copy.content, path)
        return _ExportedFile(copy, OnnxModel(path, self._threads, copy.input_names))

    @contextlib.contextmanager
    def preserved_random_state(self) -> Iterator[None]:
        """Of NumPy and Python."""
        state = _random_state()
        try:
            yield
        finally:
            _restore_random_state(state)

    def state(self, other_ranks: Mapping[int, bytes]) -> State:
        """What the script saves, and the random generators of NumPy and Python."""
        del other_ranks  # such a job has one process
        return {"saved": None if self._save is None else (self._save(),), "random": _random_state()}

    def restore(self, state: State, rank: int) -> None:
        """See :class:`Trained`."""
        del rank
        self._restored = state["saved"] or ()
        _restore_random_state(state["random"])

    def restore_model(self, state: State) -> None:
        """See :class:`Trained`."""
        self._restored = state["saved"] or ()

    def use_folder(self, folder: Path) -> None:
        """See :class:`Trained`."""
        self._folder = folder

    def use_threads(self, count: int) -> None:
        """Those of OpenMP and BLAS, where there is a library that can say it to them."""
        self._threads = count
        with contextlib.suppress(ImportError):
            import threadpoolctl  # type: ignore[import-untyped]  # comes with scikit-learn

            threadpoolctl.threadpool_limits(count)

    def _copy(self, offer: Offer | None) -> OnnxCopy:
        if offer is None and self._export is not None:
            offer = Offer(self._export(), None, None)
        if offer is None:
            raise DeliveryFailedError("the script gives no model")
        content = content_of(offer.onnx, self._folder)
        rows = self._rows if offer.inputs is None else _Rows(offer.inputs)
        if rows is None:
            raise DeliveryFailedError(
                "there are no rows to try the model on: give example_input= to connect(), or inputs= to deliver()"
            )
        if offer.outputs is not None:
            return OnnxCopy(content, rows.names, _told(rows.signature.example, offer.outputs))
        return OnnxCopy(content, rows.names, self._questions(rows.samples))

    def _questions(self, samples: Samples) -> tuple[_Question, ...]:
        # No made-up rows: they find what tracing lost, and these converters write down what was learnt. Far from real
        # rows scores are all alike in 32 bits, and the label is any of these.
        real = (samples.reference(), *samples.batches())
        return tuple(_Question(batch, None if self._predict is None else self._predict(*batch)) for batch in real)


class _Rows:
    """Rows of one example."""

    def __init__(self, example: ExampleInput) -> None:
        signature = Signature.from_example(example)
        # What is served has 32 bits as a rule, and a number may lie on the other side of a threshold with 64.
        few = (each[:KEPT_ROWS] for each in signature.example)  # they are in each copy, and in checkpoints
        rounded = tuple(each.astype(np.float32) if each.dtype == np.float64 else each for each in few)
        self.signature = replace(signature, example=rounded)
        self.samples = Samples(self.signature, invents=False)
        self.names = signature.input_names if isinstance(example, Mapping) else None


class _ExportedFile(Exported):
    def __init__(self, copy: OnnxCopy, model: OnnxModel) -> None:
        self._copy, self._model = copy, model
        self._check_inputs()
        reference = copy.questions[0]
        self._found = _answers_by_name(model, reference.batch)
        self._binding = None if reference.answer is None else Binding.of(reference.answer, self._found)
        self._compared = self._compare()

    @property
    def model(self) -> OnnxModel:
        """See :class:`Exported`."""
        return self._model

    @property
    def rows(self) -> Batch | None:
        """The largest batch that the script gave or asked about."""
        return max((each.batch for each in self._copy.questions), key=lambda batch: batch[0].shape[0])

    def predict_with(self, model: OnnxModel) -> Predict:
        """Answers in the form of the script's own predict."""

        def ask_file(*arrays: Any) -> Prediction:
            found = _answers_by_name(model, arrays)
            return unpack(list(found.values())) if self._binding is None else self._binding.as_script(found)

        return ask_file

    def compared(self) -> Compared:
        """See :class:`Exported`."""
        return self._compared

    def reference(self) -> dict[str, Array]:
        """See :class:`Exported`."""
        question = self._copy.questions[0]
        told = {} if self._binding is None else self._binding.answers(question.answer)
        # Of labels the file's own: these were compared by how many differ, and a server takes none that does.
        answers = {name: each for name, each in told.items() if is_real(each)}
        answers |= {name: self._found[name] for name in (told or self._found) if name not in answers}
        inputs = dict(zip(self._model.input_names, question.batch, strict=True))
        return {
            **{f"input_{name}": each for name, each in inputs.items() if name in self._model.taken},
            **{f"output_{name}": each for name, each in answers.items()},
        }

    def _check_inputs(self) -> None:
        given, taken = self._copy.questions[0].batch, self._model.taken
        names = self._copy.input_names
        if (names is None and len(given) != len(taken)) or (names is not None and not set(taken) <= set(names)):
            what = f"{len(given)} inputs were given" if names is None else f"the inputs {', '.join(names)} were given"
            raise DeliveryFailedError(f"{what}, and the model takes {', '.join(taken)}")

    def _compare(self) -> Compared:
        if self._binding is None:
            return check_same_answers(
                (Asked(each.batch, {}) for each in self._copy.questions), self._model, _OWN, [_NOBODY_ANSWERED]
            )
        asked = (Asked(each.batch, self._binding.answers(each.answer)) for each in self._copy.questions)
        return check_same_answers(asked, self._model, _OWN, [])


def _answers_by_name(model: OnnxModel, arrays: tuple[Any, ...]) -> dict[str, Array]:
    return dict(zip(model.output_names, model.run(arrays), strict=True))


def _told(batch: Batch, outputs: Any) -> tuple[_Question, ...]:
    """Rows with the answers that came with them: the reference, one row, and all of them."""

    def first(count: int) -> _Question:
        if isinstance(outputs, Mapping):
            answer: Any = {name: each[:count] for name, each in outputs.items()}
        else:
            answer = tuple(each[:count] for each in outputs) if isinstance(outputs, tuple) else outputs[:count]
        return _Question(tuple(array[:count] for array in batch), answer)

    return tuple(first(count) for count in (REFERENCE_ROWS, 1, batch[0].shape[0]))


def _random_state() -> tuple[Any, ...]:
    return np.random.get_state(legacy=True), random.getstate()


def _restore_random_state(state: tuple[Any, ...]) -> None:
    np.random.set_state(state[0])
    random.setstate(state[1])
