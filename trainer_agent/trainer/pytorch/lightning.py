"""A callback that makes a script of Lightning a job."""

from __future__ import annotations

import sys
from typing import Any

import lightning.pytorch as lightning

from tiercel.trainer_agent.errors import RanksError
from tiercel.trainer_agent.trainer.callback_loop import CallbackLoop
from tiercel.trainer_agent.trainer.job import Job
from tiercel.trainer_agent.trainer.session import CHECKPOINT_SECONDS, connect
from tiercel.trainer_agent.trainer.signature import Evaluate, ExampleInput


class TiercelCallback(lightning.Callback):
    """Reports what the module logs, is paced and stopped, keeps checkpoints, and hands the module over.

    What the module logs by the end of an epoch is reported there, if it was validated; the job's metric has to be among
    it. The module is asked and exported by its ``forward``. A run that was ended goes on after the last epoch that a
    checkpoint has, with optimizers, schedulers and counters as they were.

    Args:
        example_input: One batch of input, as for :func:`tiercel.trainer.connect`.
        evaluate: As for :func:`tiercel.trainer.connect`; None: what the module logs is believed.
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
        self._job: Job  # from the moment on at which the training begins
        self._loop: CallbackLoop
        self._has_measured = False

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Connect, restore, and let the training begin at the epoch that is next.

        Raises:
            RanksError: Lightning trains in several processes.
        """
        if trainer.world_size > 1:
            raise RanksError("TiercelCallback trains in one process; give Trainer(devices=1), and submit with ranks: 1")
        self._job = connect(
            pl_module,
            self._example_input,
            self._evaluate,
            _Training(trainer),
            checkpoint_seconds=self._checkpoint_seconds,
        )
        most = trainer.max_epochs
        self._loop = CallbackLoop(self._job, sys.maxsize if most is None or most < 0 else most)
        epoch = self._go_on(trainer)
        if epoch is None:  # all are done
            return
        before = dict.fromkeys(("ready", "started", "processed", "completed"), epoch - 1)
        trainer.fit_loop.epoch_progress.load_state_dict({"total": before, "current": before})

    def on_train_epoch_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """The boundary before the first step."""
        if not self._loop.begin_steps():
            _stop(trainer)

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """The boundary between two steps."""
        if not (trainer.is_last_batch or self._loop.next_step()):
            _stop(trainer)

    def on_validation_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """What is logged is of this epoch."""
        self._has_measured = not trainer.sanity_checking

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Report, and end the epoch."""
        self._loop.end_steps()
        if self._has_measured or not trainer.enable_validation:  # else there are numbers of an earlier epoch
            self._job.report(**{name: float(value) for name, value in trainer.callback_metrics.items()})
        self._has_measured = False
        self._go_on(trainer)

    def _go_on(self, trainer: lightning.Trainer) -> int | None:
        epoch = self._loop.next_epoch()
        if epoch is None:
            _stop(trainer)
        return epoch


class _Training:
    """Optimizers, schedulers and counters of a trainer, as a checkpoint keeps them."""

    def __init__(self, trainer: lightning.Trainer) -> None:
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        """See :class:`~tiercel.trainer_agent.trainer.pytorch.pytorch_model.Stateful`."""
        loop = self._trainer.fit_loop.epoch_loop
        return {
            "optimizers": [each.state_dict() for each in self._trainer.optimizers],
            "schedulers": [each.scheduler.state_dict() for each in self._trainer.lr_scheduler_configs],
            "automatic": loop.automatic_optimization.optim_progress.state_dict(),
            "manual": loop.manual_optimization.optim_step_progress.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """See :class:`~tiercel.trainer_agent.trainer.pytorch.pytorch_model.Stateful`."""
        for optimizer, state in zip(self._trainer.optimizers, state_dict["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        for config, state in zip(self._trainer.lr_scheduler_configs, state_dict["schedulers"], strict=True):
            config.scheduler.load_state_dict(state)
        loop = self._trainer.fit_loop.epoch_loop
        loop.automatic_optimization.optim_progress.load_state_dict(state_dict["automatic"])
        loop.manual_optimization.optim_step_progress.load_state_dict(state_dict["manual"])


def _stop(trainer: lightning.Trainer) -> None:
    """End the training here, also where the script wants a least number of epochs or steps."""
    trainer.fit_loop.min_epochs = 0
    trainer.fit_loop.epoch_loop.min_steps = None
    trainer.should_stop = True
