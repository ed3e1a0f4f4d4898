"""What can go wrong between a training script and its agent, in words for the script's author.

::

    TrainerError                  base
    ├── AgentUnreachableError     no welcome from the node's agent
    ├── MissingMetricError        a report lacks the metric that the job's tiers are about
    ├── CheckpointError           a checkpoint does not fit the model or the optimizer
    └── ExportError               there is no model to hand over, and why
        └── FallsShortError       it misses the target, and that is all
"""

from __future__ import annotations


class TrainerError(Exception):
    """Base of what the trainer library raises on purpose."""


class AgentUnreachableError(TrainerError):
    """The agent did not welcome the process in time."""


class MissingMetricError(TrainerError):
    """A report does not contain the metric that the job's tiers are about."""


class CheckpointError(TrainerError):
    """A checkpoint is whole but does not fit the script."""


class ExportError(TrainerError):
    """The model cannot be handed over; the message says why, for the tenant."""


class FallsShortError(ExportError):
    """The exported model misses the target that was reported; better weights may reach it."""
