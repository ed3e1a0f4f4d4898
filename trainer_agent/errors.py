"""What can go wrong in the agent in a way that somebody should read about.

::

    AgentError                        a sentence for people
    ├── SetupError                    the agent cannot start like this; says what to do
    ├── RunFailedError                a run cannot be started or goes no further; becomes the run's reason
    ├── WarmStartError                a run is no fork of a template, and is started cold; becomes a line of its log
    ├── DeliveryFailedError           a model cannot be delivered; becomes the delivery's reason
    │   └── FallsShortError           it misses the target, which better weights may not
    └── TransferError                 something did not come from the broker, or did not get there
        ├── RefusedError              the broker does not give it or take it; says with which status
        ├── DataGoneError             a data set is not on the node any more
        └── CheckpointError           a checkpoint cannot go to another node; becomes the reason of a move that failed
"""

from __future__ import annotations


class AgentError(Exception):
    """Base of the agent's errors.

    Args:
        message: What is wrong and what to do about it, in a sentence or two.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class SetupError(AgentError):
    """The agent cannot start like this."""


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
    """A model cannot be delivered."""


class FallsShortError(DeliveryFailedError):
    """The exported model misses the target that the script reported; a later one may reach it."""


class TransferError(AgentError):
    """Something that a run needs did not come from the broker, or did not get there."""


class RefusedError(TransferError):
    """The broker does not give or take something.

    Args:
        status: gRPC's.
        details: The broker's words.
    """

    def __init__(self, status: object, details: str) -> None:
        super().__init__(f"the broker refuses: {details}")
        self.status = status
        self.details = details


class DataGoneError(TransferError):
    """A data set that a run needs is not on the node any more."""


class CheckpointError(TransferError):
    """A checkpoint cannot go to another node."""
