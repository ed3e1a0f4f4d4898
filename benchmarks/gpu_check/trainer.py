"""A training in a process of its own, paced by the trainer library: ``python -m benchmarks.gpu_check.trainer``.

``DEVICE WIDTH BATCH-SIZE REPEATS SEED LEARNING-RATE`` on the command line. Lines of JSON on standard input, such as
``{"share": 0.5}``, say what it may use of the device's time from now on (1: no limit; 0: nothing, which is how it
begins). It tells ``{"ready": ...}`` once, then ten times a second what is done, and ends when its input closes.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from benchmarks.gpu_check.device_time import StepTimer, timer_for
from benchmarks.gpu_check.training import Training
from benchmarks.gpu_check.workloads import Workload
from tiercel.trainer_agent.trainer.accelerator_clock import CudaClock, StepClock
from tiercel.trainer_agent.trainer.accelerator_pacing import AcceleratorPacer

TELL_SECONDS = 0.1
LOSS_STEPS = 20
_ORDERS = 100


class PacedTraining:
    """Trains, rests, and does as it is told."""

    def __init__(
        self, training: Training, pacer: AcceleratorPacer, timer: StepTimer, orders: queue.Queue[dict[str, Any] | None]
    ) -> None:
        self._training, self._pacer, self._timer, self._orders = training, pacer, timer, orders
        self._share, self._over = 0.0, False
        self._told_at, self._loss = 0.0, 0.0

    def run(self) -> None:
        """Until it is told to end."""
        steps = 0
        while not self._rested():
            self._timer.begin()
            self._pacer.begin()
            loss = self._training.step()
            self._pacer.end()
            self._timer.end()
            steps += 1
            if steps % LOSS_STEPS == 0:
                self._loss = float(loss)
            self._tell()

    def _rested(self) -> bool:
        """Wait until another step may be issued; returns whether all is over."""
        self._take(0.0)
        while not self._over and (not self._share or (delay := self._pacer.delay_seconds()) > 0):
            self._take(delay if self._share else TELL_SECONDS)
            self._tell()
        return self._over

    def _take(self, seconds: float) -> None:
        """Wait for an order for so long."""
        try:
            order = self._orders.get(timeout=seconds) if seconds else self._orders.get_nowait()
        except queue.Empty:
            return
        if order is None:
            self._over = True
            return
        self._share = float(order["share"])
        self._pacer.limit(self._share if self._share < 1 else 0.0)
        tell({"share": self._share, "since": time.monotonic()})

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._told_at >= TELL_SECONDS:
            self._told_at = now
            tell(
                asdict(self._timer.done()) | {"loss": self._loss, "counted_seconds": self._pacer.reading().busy_seconds}
            )


def tell(news: dict[str, Any]) -> None:
    """Write a line."""
    sys.stdout.write(json.dumps(news) + "\n")
    sys.stdout.flush()


def _listen(orders: queue.Queue[dict[str, Any] | None]) -> None:
    for line in sys.stdin:
        orders.put(json.loads(line))
    orders.put(None)


def main(arguments: Sequence[str]) -> None:
    """Train as the parent process says."""
    name, *workload = arguments
    device = torch.device(name)
    if device.type == "cpu":
        # One core stands in for the device, so that trainings share it as they would share that.
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        torch.set_num_threads(1)
    training = Training(device, Workload.of(workload))
    training.step().item()  # what is compiled, allocated and loaded at first is not measured
    if device.type == "cuda":
        # As the trainer library's Accelerators.of chooses its clocks.
        clock: CudaClock | StepClock = CudaClock(torch.cuda.current_device())
    else:
        clock = StepClock()
    orders: queue.Queue[dict[str, Any] | None] = queue.Queue(_ORDERS)
    threading.Thread(target=_listen, args=(orders,), name="orders", daemon=True).start()
    paced = PacedTraining(training, AcceleratorPacer([clock]), timer_for(device), orders)
    tell({"ready": True})
    paced.run()


if __name__ == "__main__":
    main(sys.argv[1:])
