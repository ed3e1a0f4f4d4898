"""Endpoints, their versions, and deliveries."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tiercel.core.cheap_variants import CheapVariant
from tiercel.core.checkpoints import Artefact
from tiercel.core.drift import InputDrift
from tiercel.core.endpoint_access import EndpointAccess
from tiercel.core.feedback import VersionFeedback
from tiercel.core.fields import NOT_TOLD
from tiercel.core.jobs import Direction
from tiercel.core.retraining import Missed, Retrain, Retraining

# Newest versions of a variant whose files are kept beside the one that answers, where nobody says how many.
KEPT_VERSIONS = 5


@dataclass(frozen=True, slots=True)
class Tensor:
    """What a model takes or gives under one name."""

    name: str  # as requests call it
    datatype: str  # as the Open Inference Protocol calls it, such as ``FP32``
    # Its axes, -1 for one of any length; None where the model does not say how many there are.
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Signature:
    """What a model takes and gives."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Version:
    """One verified ONNX artefact of an endpoint."""

    version: int  # number within the endpoint, from 1
    job_id: str  # the job that trained it; empty of a file that somebody deployed
    tier: int  # number of the tier it fulfils; 0 for a model that is better than those of the tiers, and for a file
    metric: str  # name of the metric; empty where nobody said how good it is
    # The metric re-measured on the exported model, or as whoever deployed it said; None where nobody did.
    value: float | None
    delivered_at: float  # when it began to answer, seconds since the Unix epoch
    sha256: str  # of the ONNX file, hexadecimal
    # Whether a larger or a smaller metric is better; None of versions that were stored without.
    direction: Direction | None = None
    variant: str = ""  # the variant that it is a version of; empty for an endpoint without variants
    node_id: str = ""  # node that has its files; empty of versions that were stored without: the endpoint's
    signature: Signature | None = None  # what it takes and gives; None where nobody said
    held: str = ""  # why it was not let answer when it was delivered, plain words; empty once it has answered
    # Its files in the artefact store; None where that has them not, or not yet.
    stored: Artefact | None = field(default=None, metadata=NOT_TOLD)
    target: float | None = None  # the target of its tier; None of a model that is better than those of the tiers
    size_bytes: int = 0  # of the ONNX file; 0 of versions that were stored without
    # Median delay of the endpoint's answers when this version stopped to answer, or None.
    p50_seconds: float | None = None
    p95_seconds: float | None = None  # the same, the 95th percentile
    removed: bool = False  # whether its files were removed before their time
    deployed_by: str = ""  # who deployed it as a file; empty of what a job trained
    file: str = ""  # the name of that file, or empty
    # When and how it is trained again, ``below`` by now a number where there is one; None: never.
    retrain: Retrain | None = field(default=None, metadata=NOT_TOLD)
    # What became of its cheap variants, each once; empty where its job asked for none.
    cheap_variants: tuple[CheapVariant, ...] = ()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The name that applications call."""

    name: str  # unique among all tenants, since it is part of the URL
    tenant: str  # the owner
    next_version: int = 1  # number the next delivery will get
    # Delivered versions, oldest first; those that are kept, and a bounded history of others.
    versions: tuple[Version, ...] = ()
    node_id: str = ""  # node whose inference server has the live versions, or empty
    # Delay that its tenant wants from arrival to answer (QoE objective), or None.
    objective_seconds: float | None = None
    # Nodes on which versions of it may be left from before it was deleted, each with the variant: they go.
    left: tuple[tuple[str, str], ...] = ()
    # Number of the version that shall answer, by variant; a variant that is not named (of endpoints that were stored
    # without) answers with its newest.
    live_versions: Mapping[str, int] = field(default_factory=dict)
    # Variants whose live version stays whatever is delivered, since somebody chose it.
    pinned: frozenset[str] = frozenset()
    access: EndpointAccess = EndpointAccess.TENANT  # who may ask it
    # Keys that were made until then do not count, seconds since the Unix epoch: they were good for an endpoint of this
    # name that was deleted.
    keys_from: float = 0.0
    replicas: int = 1  # on how many nodes its live version shall answer, where there are as many
    auto_replicas: bool = False  # whether the broker says on how many, by what is asked of it
    # Nodes that shall have a copy of its live version, beside ``node_id``, which it was delivered on.
    replica_nodes: tuple[str, ...] = ()
    keep: int = KEPT_VERSIONS  # of how many of its newest versions, or of those of each variant, the files are kept
    coming: tuple[Deployment, ...] = ()  # files that somebody deployed and that are no versions yet, in their order
    missed: tuple[Missed, ...] = ()  # its versions that are less often right in use than they should be
    drifted: tuple[int, ...] = ()  # its versions that are asked something else than at first, at some node
    retrainings: tuple[Retraining, ...] = ()  # the latest times that it was trained again by itself, oldest first

    @property
    def live(self) -> tuple[Version, ...]:
        """The versions that shall answer, by variant; of an endpoint without variants just one."""
        newest = {version.variant: version.version for version in sorted(self.versions, key=lambda each: each.version)}
        numbers = {**newest, **self.live_versions}
        return tuple(sorted((v for v in self.versions if numbers[v.variant] == v.version), key=lambda v: v.variant))

    @property
    def live_version(self) -> int | None:
        """Number of the version that shall answer, or None; of several variants' the highest."""
        return max((version.version for version in self.live), default=None)

    def live_of(self, variant: str) -> Version | None:
        """The version of a variant that shall answer, or None."""
        return next((version for version in self.live if version.variant == variant), None)

    def node_of(self, version: Version) -> str:
        """Node that has the files of a version."""
        return version.node_id or self.node_id


@dataclass(frozen=True, slots=True)
class DelayWindow:
    """How long an endpoint's answers took in the last few seconds."""

    seconds: float  # how far the window reaches back
    answers: int = 0  # requests that were answered with a result
    failures: int = 0  # requests that were refused for want of room, timed out, or failed
    # Fraction of both that was answered within the objective, or None without one or without requests.
    in_objective: float | None = None
    p50_seconds: float | None = None  # median delay of the answers, or None without answers
    p95_seconds: float | None = None  # 95th percentile
    p99_seconds: float | None = None  # 99th percentile


@dataclass(frozen=True, slots=True)
class EndpointUsage:
    """What requests an endpoint had in a while."""

    endpoint: str  # its name
    seconds: float  # how long the while was
    requests: int = 0  # requests that arrived, answered or not
    answers: int = 0  # requests that were answered with a result
    delay_seconds: float = 0.0  # from arrival to answer, added up over the answers
    cpu_seconds: float = 0.0  # CPU that running its model took
    failures: int = 0  # requests that were refused for want of room, timed out, or failed
    on_time: int = 0  # answers within the objective
    # Delays of the last few seconds, whenever the while began; the shortest window first.
    windows: tuple[DelayWindow, ...] = ()
    answered_by: Mapping[str, int] = field(default_factory=dict)  # of an endpoint with variants: answers of each
    feedback: tuple[VersionFeedback, ...] = ()  # what applications said of the last rows that versions answered
    inputs: tuple[InputDrift, ...] = ()  # whether what versions that answer are asked is as it was at first


@dataclass(frozen=True, slots=True)
class EndpointLoad:
    """The same as rates."""

    requests_per_second: float = 0.0  # requests that arrived
    delay_seconds: float | None = None  # mean time from arrival to answer, or None when nothing was answered
    cpu_cores: float = 0.0  # CPU seconds per second that its answers took
    # Fraction of its requests that was answered within the objective, or None without one or without requests.
    in_objective: float | None = None
    # Delays of the last few seconds, the shortest window first; empty without requests.
    windows: tuple[DelayWindow, ...] = ()
    # By how much the inference server's event loop came late, which delays do not have in them, or None.
    lag_seconds: float | None = None
    # Of an endpoint with variants: fraction of the answers that each gave; empty without answers.
    answered_parts: Mapping[str, float] = field(default_factory=dict, metadata=NOT_TOLD)

    @property
    def p95_seconds(self) -> float | None:
        """95th percentile of the delay in the shortest window, or None without answers."""
        return self.windows[0].p95_seconds if self.windows else None


class DeliveryState(enum.Enum):
    """Where a delivery is."""

    REQUESTED = "requested"
    EXPORTING = "exporting"
    LOADING = "loading"
    DELIVERED = "delivered"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        """Whether nothing happens to the delivery any more."""
        return self in {DeliveryState.DELIVERED, DeliveryState.FAILED}


_DEPLOYMENT_ID = re.compile(r"deploy-[1-9]\d*-of-(.+)")
_DELIVERY_ID = re.compile(r"(.+)-(?:tier-\d+(?:-again-\d+)?|best-\d+)")


class Verdict(enum.Enum):
    """Whether a model that a node has in its hands is to answer."""

    OPEN = "open"
    LIVE = "live"
    HELD = "held"


def delivery_id(job_id: str, tier: int, count: int = 0) -> str:
    """The id of the one delivery there can be for this job and tier (1 for the first).

    Args:
        job_id: The job.
        tier: The tier; 0 for its best model beyond the tiers.
        count: Of a tier: how many of its deliveries failed before the job was resumed, since another one is asked for
            then. Of those beyond the tiers: which one, from 1.
    """
    if not tier:
        return f"{job_id}-best-{count}"
    return f"{job_id}-tier-{tier}" + (f"-again-{count}" if count else "")


def deployment_id(endpoint: str, version: int) -> str:
    """The id of the delivery of a file that somebody deployed as this version."""
    return f"deploy-{version}-of-{endpoint}"


def deployed_endpoint(known_id: str) -> str:
    """The endpoint of a delivery of a file that somebody deployed; empty where that is the id of none."""
    match = _DEPLOYMENT_ID.fullmatch(known_id)
    return match[1] if match is not None else ""


def job_of_delivery(known_id: str) -> str:
    """The job of a delivery; empty where that is no delivery's id."""
    match = _DELIVERY_ID.fullmatch(known_id)
    return match[1] if match is not None else ""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The hand-over of a model at a tier: export, judge, verify, load, warm, flip."""

    id: str  # see :func:`delivery_id` and, of a file that somebody deployed, :func:`deployment_id`
    job_id: str  # the job that reached the tier; empty of a file that somebody deployed
    tier: int  # number of the tier; 0 for the best model beyond the tiers, and for a file
    target: float  # the tier's target; beyond the tiers what the model has to exceed; of a file its value, or 0
    endpoint: str  # where the model goes
    # The number it will have there; fixed before the work begins, so that doing it twice is doing it once. Beyond the
    # tiers, where there may well be no model, 0 until there is one.
    version: int
    state: DeliveryState  # where it is
    requested_at: float  # when the tier was reached, seconds since the Unix epoch
    value: float | None = None  # the metric re-measured on the exported model, or None
    sha256: str = ""  # of the ONNX file, or empty
    delivered_at: float | None = None  # when the version began to answer, or None
    reason: str = ""  # plain words when it failed, or when it was delivered and does not answer
    variant: str = ""  # the variant that it is a version of; empty for an endpoint without variants
    verdict: Verdict = Verdict.OPEN  # whether the model is to answer; open until a node has said what the model is
    signature: Signature | None = None  # what the model takes and gives; None where nobody said
    size_bytes: int = 0  # of the ONNX file, or 0
    deployed_by: str = ""  # who deployed it as a file; empty of what a job trained
    file: str = ""  # the name of that file, or empty
    # What became of its cheap variants, as a node says; of a file what came of making them.
    cheap_variants: tuple[CheapVariant, ...] = ()

    @property
    def is_deployment(self) -> bool:
        """Whether no job trained the model: it is a file that somebody deployed."""
        return not self.job_id


@dataclass(frozen=True, slots=True)
class Deployment:
    """A file that somebody deployed, on its way to be a version."""

    delivery: Delivery  # what is known of it, which is all but whether its node takes it
    node_id: str  # the node that shall answer with it
    metric: str = ""  # name of the metric; empty where nobody said how good it is
    direction: Direction = Direction.MAX  # whether a larger or a smaller metric is better
    may_replace: bool = False  # whether it shall answer even where it is worse, or takes or gives something else


@dataclass(frozen=True, slots=True)
class Moved:
    """How much of a version's files has gone from one machine to another so far."""

    bytes: int
    of_bytes: int
