"""News about jobs, endpoints and nodes: what WatchJobs streams and MQTT publishes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tiercel.core.drift import InputDrift
from tiercel.core.endpoints import EndpointLoad, Version
from tiercel.core.feedback import AccuracyInUse, VersionFeedback
from tiercel.core.fields import NOT_TOLD
from tiercel.core.jobs import JobState, TierStatus
from tiercel.core.nodes import Accelerator, Drain
from tiercel.core.shares import Share


@dataclass(frozen=True, slots=True)
class StateChanged:
    """A job entered a state."""

    state: JobState
    reason: str
    type: Literal["StateChanged"] = "StateChanged"


@dataclass(frozen=True, slots=True)
class ProgressMade:
    """A job's script reported metrics; ``value`` is the one the tiers are about."""

    epoch: int
    value: float
    metrics: Mapping[str, float]
    cpu_seconds: float
    accelerator_seconds: float = 0.0
    type: Literal["ProgressMade"] = "ProgressMade"


@dataclass(frozen=True, slots=True)
class TierChanged:
    """A tier of a job was reached, delivered, failed, or found out of reach."""

    tier: TierStatus
    type: Literal["TierChanged"] = "TierChanged"


@dataclass(frozen=True, slots=True)
class ShareChanged:
    """A job got another share, or its first one."""

    node_id: str
    share: Share
    type: Literal["ShareChanged"] = "ShareChanged"


@dataclass(frozen=True, slots=True)
class PriorityChanged:
    """Its tenant gave a job another priority among its own."""

    priority: int
    type: Literal["PriorityChanged"] = "PriorityChanged"


JobChange = StateChanged | ProgressMade | TierChanged | ShareChanged | PriorityChanged


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Something that happened to a job."""

    sequence: int  # grows in the order in which things happened, over all jobs and restarts of the broker
    job_id: str  # the job
    tenant: str  # its owner
    at: float  # seconds since the Unix epoch
    change: JobChange  # what happened


@dataclass(frozen=True, slots=True)
class EndpointEvent:
    """Another version of an endpoint answers."""

    endpoint: str
    tenant: str
    at: float
    version: Version


@dataclass(frozen=True, slots=True)
class EndpointGone:
    """An endpoint, or a variant of it, was deleted: nothing answers."""

    endpoint: str
    tenant: str
    at: float
    variant: str = ""


@dataclass(frozen=True, slots=True)
class EndpointShareChanged:
    """What an endpoint may use of its node changed; ``share`` is None when nothing limits it any more."""

    endpoint: str
    tenant: str
    at: float
    node_id: str
    share: Share | None


@dataclass(frozen=True, slots=True)
class PromiseJudged:
    """A version that answers began to be less often right than was promised, or is right as often again."""

    endpoint: str
    tenant: str
    at: float
    version: int
    promised: float  # the accuracy
    in_use: AccuracyInUse
    kept: bool  # whether it is as often right as was promised, as far as can be told


@dataclass(frozen=True, slots=True)
class InputsJudged:
    """What a version that answers is asked began to be other than at first, or is as it was again."""

    endpoint: str
    tenant: str
    at: float
    drifted: bool
    inputs: InputDrift  # as the node says where it is farthest off


@dataclass(frozen=True, slots=True)
class RetrainingTold:
    """What is done about a model that is to be trained again by itself, or why nothing is, is other than before."""

    endpoint: str
    tenant: str
    at: float
    words: str
    job_id: str = ""  # the retraining that is decided on or under way, or empty


@dataclass(frozen=True, slots=True)
class EndpointMeasured:
    """What a node's inference server counted of an endpoint lately; of those that were asked something."""

    endpoint: str
    tenant: str
    at: float
    node_id: str
    objective_seconds: float | None
    load: EndpointLoad
    feedback: tuple[VersionFeedback, ...] = ()  # what applications said of its versions, at all nodes


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A node came or went, began or ceased to be emptied, or something of its accelerators changed."""

    node_id: str
    online: bool
    lease_epoch: int
    at: float
    accelerators: tuple[Accelerator, ...] = ()
    drain: Drain = Drain.NO


@dataclass(frozen=True, slots=True)
class ShareDecision:
    """A change of a job's or an endpoint's share, as the scheduler decided it."""

    job_id: str = field(metadata=NOT_TOLD)  # the job; empty when it is about an endpoint
    at: float  # seconds since the Unix epoch
    policy: str  # name of the policy
    trigger: str  # what made the scheduler run: ``arrival``, ``exit``, ``tier``, ``node`` or ``interval``
    node_id: str  # where the job is placed, or the endpoint answers
    share: Share  # what it got, with the reason; weight 1 without a cap for an endpoint that is not limited
    endpoint: str = field(default="", metadata=NOT_TOLD)  # the endpoint; empty when it is about a job

    @property
    def subject(self) -> str:
        """Whom it is about, a job or an endpoint, in one name; no job has the name of an endpoint."""
        return subject_of_endpoint(self.endpoint) if self.endpoint else self.job_id


def subject_of_endpoint(name: str) -> str:
    """The subject of decisions about an endpoint; ids of jobs have no colon."""
    return f"endpoint:{name}"


Event = (
    JobEvent
    | EndpointEvent
    | EndpointGone
    | EndpointShareChanged
    | EndpointMeasured
    | PromiseJudged
    | InputsJudged
    | RetrainingTold
    | NodeEvent
)
