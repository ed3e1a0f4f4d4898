"""How a script becomes a job: :func:`connect`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from tiercel.core.script_checks import CHECK_VARIABLE
from tiercel.trainer_agent.errors import RanksError
from tiercel.trainer_agent.trainer.any_model import AnyModel
from tiercel.trainer_agent.trainer.job import Job
from tiercel.trainer_agent.trainer.libraries.estimators import Estimating, Estimator, is_estimator
from tiercel.trainer_agent.trainer.library_model import LibraryModel
from tiercel.trainer_agent.trainer.onnx_files import OnnxSource
from tiercel.trainer_agent.trainer.rank import Rank
from tiercel.trainer_agent.trainer.signature import DynamicAxes, Evaluate, ExampleInput, Predict
from tiercel.trainer_agent.trainer.standalone import StandaloneJob
from tiercel.trainer_agent.trainer.trained import Trained

if TYPE_CHECKING:
    from torch import nn

    from tiercel.trainer_agent.trainer.pytorch.pytorch_model import Stateful

RUN_DIRECTORY_VARIABLE = "TIERCEL_RUN_DIR"
CHECKPOINT_SECONDS = 5.0


@overload
def connect(
    model: nn.Module,
    example_input: ExampleInput,
    evaluate: Evaluate | None,
    optimizer: Stateful | None = None,
    scheduler: Stateful | None = None,
    *,
    dynamic_axes: DynamicAxes | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Job: ...


@overload
def connect(
    model: Estimating,
    example_input: ExampleInput,
    evaluate: Evaluate | None = None,
    *,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Job: ...


@overload
def connect(
    *,
    export: Callable[[], OnnxSource] | None = None,
    predict: Predict | None = None,
    example_input: ExampleInput | None = None,
    evaluate: Evaluate | None = None,
    save: Callable[[], Any] | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Job: ...


def connect(
    model: nn.Module | Estimating | None = None,
    example_input: ExampleInput | None = None,
    evaluate: Evaluate | None = None,
    optimizer: Stateful | None = None,
    scheduler: Stateful | None = None,
    *,
    export: Callable[[], OnnxSource] | None = None,
    predict: Predict | None = None,
    save: Callable[[], Any] | None = None,
    dynamic_axes: DynamicAxes | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Job:
    """Connect a training script to the agent that runs it, and restore its last checkpoint.

    With ``model``, a PyTorch module or an estimator of scikit-learn, the library asks it, exports it and keeps it in
    checkpoints. Without, the model is of any framework, and the script says how that is done (``export``, ``predict``,
    ``save``), or calls :meth:`Job.deliver`. Outside of Tiercel (no ``TIERCEL_RUN_DIR`` in the environment) the job does
    nothing but drive the loops and print what is reported.

    Args:
        model: The model in training. An estimator is trained in its place, by ``partial_fit`` or ``warm_start``.
        example_input: One batch of input, batch axis first: an array or tensor, several of them in the order of the
            model's parameters (of the ONNX file's inputs), or a mapping from name to array: passed by name where
            ``forward`` takes these names, else in that order. The names are the served model's. Without ``model`` it
            may be left out where ``predict`` is asked by :meth:`Job.predict`.
        evaluate: ``evaluate(predict)`` measures whatever ``predict`` asks, arrays in and arrays out, and returns the
            job's metric, or a mapping with it in. The same code measures the model and the exported one. None: what was
            reported is believed.
        optimizer: Kept in checkpoints.
        scheduler: Learning-rate scheduler, kept in checkpoints.
        export: Returns the model as it is now: the content of an ONNX file, its path, or an ``onnx.ModelProto``. Called
            at a report that is the best so far and reaches a tier; a long one less often.
        predict: Asks the model as it is now: arrays as the ONNX file takes them in, and out an array, a tuple of
            arrays, or a mapping by the names of the file's outputs. What it says is what the file has to answer.
        save: Returns what the next run goes on from, for a checkpoint: anything that can be pickled.
            :meth:`Job.restored` returns it there.
        dynamic_axes: Axes of inputs and outputs whose size is free, beside the first, which always is: by name, from an
            axis' index to a name for it, such as ``{"ids": {1: "tokens"}}``. Axes of one name have one size. Left out,
            the second axis of inputs that are whole numbers is free where the model answers other lengths of it.
        checkpoint_seconds: A checkpoint is written at the end of an epoch, and not more often than this.

    Returns:
        The job. It is closed when the process ends, or by using it as a context manager.

    Raises:
        TypeError: ``model`` is neither a PyTorch module nor an estimator, its weights are spread over several ranks, or
            what belongs to one of the two ways was given with the other.
        ValueError: ``example_input`` or ``dynamic_axes`` does not fit the model.
        AgentUnreachableError, ConnectedError: If the agent does not answer for a minute; a model is connected already.
        RanksError: If another rank of the run is gone or does not call this, or there are several without ``model``.
        CheckpointError: If an earlier run's checkpoint does not fit the model or the optimizer.
    """
    if model is None:
        _refuse("without a model", optimizer=optimizer, scheduler=scheduler, dynamic_axes=dynamic_axes)
        trained: Trained = AnyModel(export, predict, example_input, save)
    else:
        _refuse("with a model", export=export, predict=predict, save=save)
        trained = _known_model(model, example_input, optimizer, scheduler, dynamic_axes)
    return connect_model(trained, evaluate, checkpoint_seconds)


def connect_model(trained: Trained, evaluate: Evaluate | None, checkpoint_seconds: float) -> Job:
    """Connect a model, however it is asked, exported and kept, to the agent that runs the script, if there is one.

    Raises:
        AgentUnreachableError, ConnectedError, RanksError, CheckpointError: As of :func:`connect`.
    """
    run_directory = os.environ.get(RUN_DIRECTORY_VARIABLE)
    if not run_directory:
        return _alone(trained, evaluate)
    rank = Rank.of_process()
    if isinstance(trained, AnyModel) and rank.count > 1:
        raise RanksError("a job without a PyTorch model is one process; submit it with ranks: 1")
    # gRPC and the ONNX exporters cost start-up time that a script on its own need not pay.
    from tiercel.trainer_agent.trainer.attaching import Training, attach

    return attach(Path(run_directory), Training(trained, evaluate, checkpoint_seconds), rank)


def _alone(trained: Trained, evaluate: Evaluate | None) -> Job:
    """Without an agent: on trial, or a script like any other."""
    if folder := os.environ.get(CHECK_VARIABLE):
        from tiercel.trainer_agent.trainer.checked import CheckedJob

        return CheckedJob(trained, evaluate, Path(folder))
    return StandaloneJob(trained)


def _is_of_keras(model: object) -> bool:
    """Whether it is one of Keras, which has modules of PyTorch where that is its backend; none can be copied."""
    return any(base.__module__.partition(".")[0] == "keras" for base in type(model).__mro__)


def _known_model(
    model: Any,
    example_input: ExampleInput | None,
    optimizer: Stateful | None,
    scheduler: Stateful | None,
    dynamic_axes: DynamicAxes | None,
) -> Trained:
    torch = sys.modules.get("torch")  # whoever has a module of it has imported it
    is_module = torch is not None and isinstance(model, torch.nn.Module) and not _is_of_keras(model)
    if not (is_module or is_estimator(model)):
        kind = f"{type(model).__module__.partition('.')[0]}'s {type(model).__name__}"
        message = (
            f"connect() takes a torch.nn.Module or an estimator, and model is {kind}: leave model out and say how it "
            "becomes ONNX, connect(export=...)"
        )
        raise TypeError(message)
    if example_input is None:
        raise TypeError("connect() needs example_input for a model: a few rows of what it takes")
    if not is_module:
        _refuse("with an estimator", optimizer=optimizer, scheduler=scheduler, dynamic_axes=dynamic_axes)
        return LibraryModel(Estimator(model), example_input)
    from tiercel.trainer_agent.trainer.pytorch.pytorch_model import pytorch_model

    is_alone = Rank.of_process().count == 1
    return pytorch_model(model, example_input, optimizer, scheduler, dynamic_axes, is_alone=is_alone)


def _refuse(which: str, **given: object) -> None:
    if strange := [name for name, value in given.items() if value is not None]:
        raise TypeError(f"connect() takes no {strange[0]} {which}")
