"""A callback that makes a script of Transformers a job."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tiercel.trainer_agent.errors import CheckpointError, RanksError
from tiercel.trainer_agent.trainer.callback_loop import CallbackLoop
from tiercel.trainer_agent.trainer.job import Job
from tiercel.trainer_agent.trainer.session import CHECKPOINT_SECONDS, connect
from tiercel.trainer_agent.trainer.signature import Evaluate, ExampleInput

# How fast the evaluation was, and when.
_NO_METRICS = ("_runtime", "_per_second", "epoch")


class TiercelCallback(TrainerCallback):
    """Reports what the trainer evaluates, is paced and stopped, keeps checkpoints, and hands the model over.

    Every evaluation is reported, as ``eval_accuracy`` and the like; the job's metric has to be among it. An epoch is
    over with its evaluation (``eval_strategy="epoch"``). A run that was ended goes on after the last epoch that a
    checkpoint has where the script says ``trainer.train(resume_from_checkpoint=callback.checkpoint)``.

    Args:
        example_input: One batch of input, as for :func:`tiercel.trainer.connect`: a mapping from the names of
            ``forward`` to arrays or tensors.
        evaluate: As for :func:`tiercel.trainer.connect`; None: what the trainer evaluates is believed.
        checkpoint_seconds: As for :func:`tiercel.trainer.connect`.
    """

    def __init__(
        self,
        example_input: ExampleInput,
        evaluate: Evaluate | None = None,
        *,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
    ) -> None:
        self._example_input, self._evaluate, self._checkpoint_seconds = example_input, evaluate, checkpoint_seconds
        self._job: Job  # from the moment on at which the trainer is made
        self._training = _Training()
        self._loop: CallbackLoop  # from the moment on at which it trains
        self._ends_epoch = False
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def checkpoint(self) -> str | None:
        """Folder of a checkpoint for ``Trainer.train``, with what an earlier run saved; None in a first run."""
        return None if self._folder is None else self._folder.name

    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Connect and restore.

        Raises:
            RanksError: Transformers trains in several processes.
            ValueError: Nothing would be reported.
        """
        if args.world_size > 1:
            raise RanksError("TiercelCallback trains in one process; submit the job with ranks: 1")
        if args.eval_strategy == "no":
            raise ValueError('TiercelCallback reports evaluations; give TrainingArguments(eval_strategy="epoch")')
        model = kwargs["model"]
        self._job = connect(
            model, self._example_input, self._evaluate, self._training, checkpoint_seconds=self._checkpoint_seconds
        )
        if self._training.restored is not None:
            self._folder = tempfile.TemporaryDirectory(prefix="tiercel-", ignore_cleanup_errors=True)
            self._training.write(Path(self._folder.name), model)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """From here on checkpoints hold what trains.

        Raises:
            CheckpointError: There is a checkpoint, and the script does not go on from it.
        """
        if self._folder is not None:
            self._folder.cleanup()
        if self._training.restored_steps not in (None, state.global_step):
            raise CheckpointError(
                "an earlier run of this job has left a checkpoint, and the trainer begins anew; let the script say "
                "trainer.train(resume_from_checkpoint=callback.checkpoint)"
            )
        self._training.begin(state, kwargs["optimizer"], kwargs["lr_scheduler"])
        self._loop = CallbackLoop(self._job, int(state.num_train_epochs))
        if self._loop.next_epoch() is None:
            control.should_training_stop = True

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """The boundary before the first step."""
        self._end_epoch(control)
        if not self._loop.begin_steps():
            control.should_training_stop = True

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """The boundary between two steps."""
        is_last = not state.global_step % max(1, state.max_steps // max(1, int(state.num_train_epochs)))
        if not (is_last or self._loop.next_step()):
            control.should_training_stop = True

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Its evaluation follows."""
        self._loop.end_steps()
        self._ends_epoch = True

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Report, and end the epoch."""
        metrics: dict[str, Any] = kwargs["metrics"]
        self._job.report(**{name: each for name, each in metrics.items() if not name.endswith(_NO_METRICS)})
        self._end_epoch(control)

    def _end_epoch(self, control: TrainerControl) -> None:
        if self._ends_epoch:
            self._ends_epoch = False
            if self._loop.next_epoch() is None:
                control.should_training_stop = True


class _Training:
    """Optimizer, scheduler and counters of a trainer: restored before it begins, kept from then on."""

    def __init__(self) -> None:
        self.restored: dict[str, Any] | None = None
        self._state = TrainerState()
        self._parts: dict[str, Any] = {}

    @property
    def restored_steps(self) -> int | None:
        """After how many steps that was; None where nothing was saved."""
        return None if self.restored is None else int(json.loads(self.restored["counters"])["global_step"])

    def begin(self, state: TrainerState, optimizer: Any, scheduler: Any) -> None:
        """What trains is made."""
        self._state, self._parts = state, {"optimizer": optimizer, "scheduler": scheduler}

    def state_dict(self) -> dict[str, Any]:
        """See :class:`~tiercel.trainer_agent.trainer.pytorch.pytorch_model.Stateful`."""
        counters = json.dumps(dataclasses.asdict(self._state), default=float)
        return {"counters": counters, **{name: each.state_dict() for name, each in self._parts.items()}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """See :class:`~tiercel.trainer_agent.trainer.pytorch.pytorch_model.Stateful`."""
        self.restored = state_dict

    def write(self, folder: Path, model: torch.nn.Module) -> None:
        """Write a checkpoint as Transformers reads it."""
        restored = self.restored or {}
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
        for name in ("optimizer", "scheduler"):
            torch.save(restored[name], folder / f"{name}.pt")
        (folder / "trainer_state.json").write_text(restored["counters"])
