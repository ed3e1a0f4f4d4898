"""A model of a library that is known here: how it is asked, frozen, made an ONNX file, and put back."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tiercel.trainer_agent.errors import DeliveryFailedError
from tiercel.trainer_agent.trainer.any_model import AnyModel, Offer, OnnxCopy
from tiercel.trainer_agent.trainer.checkpoints import State
from tiercel.trainer_agent.trainer.onnx_files import OnnxSource, content_of
from tiercel.trainer_agent.trainer.signature import Array, ExampleInput
from tiercel.trainer_agent.trainer.trained import Exported
from tiercel.trainer_agent.trainer.verification import first_line


@contextlib.contextmanager
def needing(package: str) -> Iterator[None]:
    """Imports of a package that only those install who use it; raises ImportError that says what to install."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f"there is no {package}; pip install {package}, or add it to requirements") from error


class Library(abc.ABC):
    """A model in training, as its library has it."""

    @abc.abstractmethod
    def predict(self, *inputs: Any) -> Any:
        """What the ONNX file has to answer to rows of the model's inputs."""

    def inputs_of(self, example_input: Any) -> Any:
        """An example as the model's ONNX file takes it."""
        return example_input

    @abc.abstractmethod
    def freeze(self) -> Any:
        """The model as it is now: something to pickle, which no training changes. Cheap, unlike an ONNX file."""

    @abc.abstractmethod
    def convert(self, frozen: Any, *row: Array) -> OnnxSource:
        """A frozen model as ONNX, for rows like this one, an array an input.

        Raises:
            ImportError: The converter is not installed; says what to install.
        """

    def save(self) -> Any:
        """What the next run goes on from."""
        return self.freeze()

    @abc.abstractmethod
    def restore(self, saved: Any, *, warm: bool) -> None:
        """Go on from what was saved; ``warm``: by another job, of which the model alone counts.

        Raises:
            ValueError: It is of another model.
        """


class LibraryModel(AnyModel):
    """A model of a library. It is made an ONNX file when that is asked for, and not at every report that is the best.

    Args:
        library: The model.
        example_input: Rows of its input.

    Raises:
        TypeError: It has several inputs.
    """

    def __init__(self, library: Library, example_input: ExampleInput) -> None:
        taken = library.inputs_of(example_input)
        super().__init__(None, library.predict, taken, library.save)
        inputs = 1 if self._rows is None else len(self._rows.signature.input_names)
        if inputs != 1 and taken is example_input:
            raise TypeError(
                f"example_input has {inputs} inputs, and such a model takes one; leave model out and say how it "
                "becomes ONNX, connect(export=...)"
            )
        self._library = library

    @property
    def has_model(self) -> bool:
        """See :class:`~tiercel.trainer_agent.trainer.trained.Trained`."""
        return True

    @property
    def keeping_exports(self) -> bool:
        """See :class:`~tiercel.trainer_agent.trainer.trained.Trained`."""
        return False

    def export(self, copy: OnnxCopy, path: Path) -> Exported:
        """See :class:`~tiercel.trainer_agent.trainer.trained.Trained`."""
        if not copy.frozen:
            return super().export(copy, path)
        (frozen,) = copy.frozen
        row = [each[0] for each in copy.questions[0].batch]
        try:
            content = content_of(self._library.convert(frozen, *row), self._folder)
        except DeliveryFailedError:
            raise
        except Exception as error:  # converters raise anything
            message = (
                f"its converter fails: {first_line(error)}; where it can be made ONNX otherwise, leave model out of "
                "connect() and hand the file over, job.deliver()"
            )
            raise DeliveryFailedError(message) from error
        return super().export(replace(copy, content=content, frozen=()), path)

    def restore(self, state: State, rank: int) -> None:
        """See :class:`~tiercel.trainer_agent.trainer.trained.Trained`."""
        super().restore(state, rank)
        self._library.restore(self.restored(None), warm=False)

    def restore_model(self, state: State) -> None:
        """See :class:`~tiercel.trainer_agent.trainer.trained.Trained`."""
        super().restore_model(state)
        self._library.restore(self.restored(None), warm=True)

    def _copy(self, offer: Offer | None) -> OnnxCopy:
        rows = self._rows
        if offer is not None or rows is None:
            return super()._copy(offer)
        return OnnxCopy(
            input_names=rows.names, questions=self._questions(rows.samples), frozen=(self._library.freeze(),)
        )
