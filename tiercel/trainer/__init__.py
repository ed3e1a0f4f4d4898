"""What a training script imports: ``import tiercel.trainer``. See ``docs/training-scripts.md``."""

from __future__ import annotations

from tiercel.trainer_agent.trainer import (
    AgentUnreachableError,
    CheckpointError,
    Evaluate,
    ExampleInput,
    Job,
    MissingMetricError,
    Predict,
    TrainerError,
    connect,
)

__all__ = [
    "AgentUnreachableError",
    "CheckpointError",
    "Evaluate",
    "ExampleInput",
    "Job",
    "MissingMetricError",
    "Predict",
    "TrainerError",
    "connect",
]
