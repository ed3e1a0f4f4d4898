"""What can go wrong on a node: the agent's and the training library's part of the catalogue in ``core/errors.py``.

::

    TiercelError
    ├── SetupError                    (core's) the agent cannot start like this; says what to do
    ├── AgentError                    what the agent says of a run, a delivery or a transfer
    │   ├── RunFailedError            a run cannot be started or goes no further; becomes the run's reason
    │   ├── WarmStartError            a run is no fork of a template, and is started cold; becomes a line of its log
    │   ├── DeliveryFailedError       a model cannot be delivered; becomes the delivery's reason
    │   │   └── FallsShortError       it misses the target, which better weights may not
    │   └── TransferError             something did not come from the broker, or did not get there
    │       ├── RefusedError          the broker does not give it or take it; says with which status
    │       └── DataGoneError         a data set is not on the node any more
    └── TrainerError                  what a training script gets to read; public as tiercel.trainer
        ├── AgentUnreachableError     no welcome from the node's agent
        ├── ConnectedError            the script has connected a model already
        ├── RanksError                another rank of the run is gone, or does not come
        ├── MissingMetricError        a report lacks the metric that the job's tiers are about
        └── CheckpointError           a checkpoint does not fit the model or the optimizer

None is the status of a call.
"""

from __future__ import annotations

from tiercel.core.errors import TiercelError


class AgentError(TiercelError):
    """Base of what the agent says of a run, a delivery or a transfer."""


class RunFailedError(AgentError):
    """A run cannot be started."""


class WarmStartError(AgentError):
    """A run cannot be forked from a template, which says nothing about the run.

    Args:
        message: Why, in a few words.
        is_templates_fault: Whether other runs would fare no better with it.
    """

    def __init__(self, message: str, *, is_templates_fault: bool) -> None:
        super().__init__(message)
        self.is_templates_fault = is_templates_fault


class DeliveryFailedError(AgentError):
    """A model cannot be handed over or delivered; the message says why, for the tenant."""


class FallsShortError(DeliveryFailedError):
    """The exported model misses the target that the script reported; a later one may reach it."""


class TransferError(AgentError):
    """Something that a run needs did not come from the broker, or did not get there."""


class RefusedError(TransferError):
    """The broker does not give or take something."""

    def __init__(self, status: object, details: str) -> None:
        super().__init__(f"the broker refuses: {details}")
        self.status = status
        self.details = details


class DataGoneError(TransferError):
    """A data set that a run needs is not on the node any more."""


class TrainerError(TiercelError):
    """Base of what the trainer library raises on purpose."""


class AgentUnreachableError(TrainerError):
    """The agent did not welcome the process in time."""


class ConnectedError(TrainerError):
    """The process has connected a model, and a run trains one."""


class RanksError(TrainerError):
    """Another rank of the run is gone, or does not come; the message says which."""


class MissingMetricError(TrainerError):
    """A report does not contain the metric that the job's tiers are about."""


class CheckpointError(TrainerError):
    """A checkpoint is whole but does not fit the script."""
