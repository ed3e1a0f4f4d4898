"""The library that a training script imports, as ``tiercel.trainer``. See ``docs/training-scripts.md``."""

from __future__ import annotations

from tiercel.trainer_agent.errors import (
    AgentUnreachableError,
    CheckpointError,
    ConnectedError,
    MissingMetricError,
    RanksError,
    TrainerError,
)
from tiercel.trainer_agent.trainer.job import Job
from tiercel.trainer_agent.trainer.session import connect
from tiercel.trainer_agent.trainer.signature import Evaluate, ExampleInput, Predict

__all__ = [
    "AgentUnreachableError",
    "CheckpointError",
    "ConnectedError",
    "Evaluate",
    "ExampleInput",
    "Job",
    "MissingMetricError",
    "Predict",
    "RanksError",
    "TrainerError",
    "connect",
]
