"""How a script becomes a job: :func:`connect`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from tiercel.trainer_agent.trainer.job import Job
from tiercel.trainer_agent.trainer.models import check_is_whole, with_free_lengths, without_wrapper
from tiercel.trainer_agent.trainer.rank import Rank
from tiercel.trainer_agent.trainer.samples import Samples
from tiercel.trainer_agent.trainer.signature import DynamicAxes, Evaluate, ExampleInput, Signature
from tiercel.trainer_agent.trainer.standalone import StandaloneJob

if TYPE_CHECKING:
    from tiercel.trainer_agent.trainer.restoring import Stateful

RUN_DIRECTORY_VARIABLE = "TIERCEL_RUN_DIR"
CHECKPOINT_SECONDS = 5.0


def connect(
    model: nn.Module,
    example_input: ExampleInput,
    evaluate: Evaluate,
    optimizer: Stateful | None = None,
    scheduler: Stateful | None = None,
    *,
    dynamic_axes: DynamicAxes | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Job:
    """Connect a training script to the agent that runs it, and restore its last checkpoint.

    Outside of Tiercel (no ``TIERCEL_RUN_DIR`` in the environment) the job does nothing but drive the loops and print
    what is reported.

    Args:
        model: The model in training.
        example_input: One batch of input, batch axis first: an array or tensor, several of them in the order of the
            model's parameters, or a mapping from name to array: passed by name where ``forward`` takes these names,
            else in that order. The names are the served model's.
        evaluate: ``evaluate(predict)`` measures whatever ``predict`` asks, arrays in and arrays out, and returns the
            job's metric, or a mapping with it in. The same code measures the PyTorch model and the exported one.
        optimizer: Kept in checkpoints.
        scheduler: Learning-rate scheduler, kept in checkpoints.
        dynamic_axes: Axes of inputs and outputs whose size is free, beside the first, which always is: by name, from an
            axis' index to a name for it, such as ``{"ids": {1: "tokens"}}``. Axes of one name have one size. Left out,
            the second axis of inputs that are whole numbers is free where the model answers other lengths of it.
        checkpoint_seconds: A checkpoint is written at the end of an epoch, and not more often than this.

    Returns:
        The job. It is closed when the process ends, or by using it as a context manager.

    Raises:
        TypeError: ``model`` is no PyTorch module, or its weights are spread over several ranks.
        ValueError: ``example_input`` or ``dynamic_axes`` does not fit the model.
        AgentUnreachableError: If the agent does not answer for a minute.
        RanksError: If another rank of the run is gone, or does not call this as well.
        CheckpointError: If an earlier run's checkpoint does not fit the model or the optimizer.
    """
    given: object = model  # a script is seldom checked for types
    if not isinstance(given, nn.Module):
        kind = f"{type(given).__module__.partition('.')[0]}'s {type(given).__name__}"
        message = f"connect() takes a torch.nn.Module, and model is {kind}: it could not be handed over at a tier"
        raise TypeError(message)
    rank, model = Rank.of_process(), without_wrapper(model)
    if rank.count > 1:
        check_is_whole(model)
    signature = Signature.from_example(example_input).fitted(model, dynamic_axes)
    if dynamic_axes is None:
        signature = with_free_lengths(signature, model)
    run_directory = os.environ.get(RUN_DIRECTORY_VARIABLE)
    if not run_directory:
        return StandaloneJob(model, signature, Samples(signature))
    # gRPC and the ONNX exporters cost start-up time that a script on its own need not pay.
    from tiercel.trainer_agent.trainer.attaching import Training, attach

    training = Training(model, signature, evaluate, optimizer, scheduler, checkpoint_seconds)
    return attach(Path(run_directory), training, rank)
