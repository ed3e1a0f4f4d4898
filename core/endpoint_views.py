"""What tenants are told of endpoints, and the client returns; as :mod:`.views`."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from tiercel.core.cheap_variants import CheapVariant
from tiercel.core.drift import InputDrift
from tiercel.core.endpoint_access import EndpointAccess
from tiercel.core.endpoints import KEPT_VERSIONS, DelayWindow
from tiercel.core.feedback import AccuracyInUse
from tiercel.core.fields import LOCAL, TOLD_OTHERWISE
from tiercel.core.jsonable import Jsonable
from tiercel.core.shares import Share
from tiercel.core.views import DecisionInfo


@dataclass(frozen=True, slots=True)
class VersionInfo(Jsonable):
    """One delivered version of an endpoint.

    Attributes:
        version: Its number.
        job_id: The job that trained it; empty of a file that somebody deployed.
        tier: Number of the tier it fulfils.
        metric: Name of the metric; empty where nobody said how good it is.
        value: The metric re-measured on the exported model, or as whoever deployed it said; None where nobody did.
        delivered_at: When it began to answer.
        sha256: Of the ONNX file.
        variant: The variant that it is a version of; empty for an endpoint without variants.
        live: Whether it is the one that shall answer.
        held: Why it was not let answer when it was delivered; empty once it has answered.
        kept: Whether its files are there, so that it may answer again.
        endpoint: The endpoint that it is a version of.
        target: The target of its tier; None of a model that is better than those of the tiers.
        size_bytes: Of the ONNX file; 0 where that is not known.
        nodes: The nodes that have its files.
        pinned: Whether it answers since somebody chose it, and stays whatever is delivered.
        p50_seconds: Median delay of the endpoint's answers in the last seconds in which it answered; None where nothing
            was asked then, and of an endpoint with variants.
        p95_seconds: The same, the 95th percentile.
        deployed_by: Who deployed it as a file; empty of what a job trained.
        file: The name of that file, or empty.
        in_use: How often it was right, by what applications say afterwards; None while they have said nothing.
        cheap_variants: What became of the models that were made of it, each once; empty where its job asked for none.
        inputs: Whether what it is asked is like what it was asked at first, as each node says at which it answers.
        was_there: Whether it was there before :meth:`~tiercel.Client.deploy`, which returned it.
    """

    version: int
    job_id: str
    tier: int
    metric: str
    value: float | None
    delivered_at: datetime
    sha256: str
    variant: str = ""
    live: bool = False
    held: str = ""
    kept: bool = False
    endpoint: str = ""
    target: float | None = None
    size_bytes: int = 0
    nodes: tuple[str, ...] = ()
    pinned: bool = False
    p50_seconds: float | None = None
    p95_seconds: float | None = None
    deployed_by: str = ""
    file: str = ""
    in_use: AccuracyInUse | None = None
    cheap_variants: tuple[CheapVariant, ...] = ()
    inputs: tuple[InputDrift, ...] = ()
    was_there: bool = field(default=False, metadata=LOCAL)


@dataclass(frozen=True, slots=True)
class VariantInfo(Jsonable):
    """One of several models that answer for an endpoint.

    Attributes:
        name: Its name.
        live_version: The version of it that shall answer.
        accuracy: Of that version, re-measured on the exported model: a fraction, by which answers are chosen.
        answered_part: Fraction of the endpoint's answers that it gave lately; None while nothing was answered.
        answering_version: The version that answers, as its node says; None while it does not say.
        problem: Why that is not the live version, as far as its node knows.
        pinned: Whether somebody chose the live version: it stays whatever is delivered.
    """

    name: str
    live_version: int
    accuracy: float
    answered_part: float | None
    answering_version: int | None = None
    problem: str = ""
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class ReplicaInfo(Jsonable):
    """A node that shall answer for an endpoint.

    Attributes:
        node_id: The node.
        answering_version: The version that answers there, as the node says; None while none does or it does not say.
        serving_http: Where it answers, ``host:port`` or ``https://host:port``, or empty.
        serving_grpc: The same over gRPC, ``grpcs://`` instead.
        problem: Why that is not the live version, as far as that is known.
    """

    node_id: str
    answering_version: int | None = None
    serving_http: str = ""
    serving_grpc: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class EndpointInfo(Jsonable):
    """The name that applications call.

    Attributes:
        name: As in the URL.
        tenant: Its owner.
        live_version: The version that shall answer; with variants the highest of those that shall.
        versions: All delivered versions, oldest first.
        node_id: Where it is served, or empty.
        serving_http: Where it answers, ``host:port`` or ``https://host:port``, or empty.
        serving_grpc: The same over gRPC, ``grpcs://`` instead.
        objective_seconds: Delay that its tenant wants from arrival to answer, or None.
        share: What it may use of its node, or None while nothing limits it.
        requests_per_second: Requests that arrived lately, or None while nothing was measured.
        delay_seconds: Mean time from arrival to answer lately, or None when nothing was answered.
        cpu_cores: CPU seconds per second that its answers took lately, or None while nothing was measured.
        in_objective: Fraction of its requests that was answered within the objective lately; refused ones and those
            that timed out were not. None without an objective or requests.
        windows: Delays of the last few seconds, the shortest window first; empty without requests.
        lag_seconds: By how much the inference server's event loop came late (95th percentile of the last 10 s), which
            delays do not have in them; None while nothing was measured.
        variants: Those that answer, by name; empty for an endpoint without variants.
        answering_version: The version that answers, as its node says; None while it does not say, or with variants.
        problem: Why that is not the live version, as far as its node knows.
        pinned: Whether somebody chose the live version: it stays whatever is delivered.
        access: Who may ask it.
        replicas: On how many nodes its live version shall answer, where there are as many.
        auto_replicas: Whether the broker says on how many, by what is asked of it.
        replicas_reason: Why these are as many as they are, in plain words; empty where its job said how many.
        places: The nodes that shall answer, its home first; empty for an endpoint with variants.
        keep: Of how many versions files are kept.
        retraining: What is done about its model being less often right in use, or why nothing is, in plain words; empty
            where no job asked for that.
        awaited: What versions wait for on other nodes that are delivered and not announced yet, in plain words.
    """

    name: str
    tenant: str
    live_version: int | None
    versions: tuple[VersionInfo, ...]
    node_id: str
    serving_http: str
    serving_grpc: str
    objective_seconds: float | None = None
    share: Share | None = None
    requests_per_second: float | None = field(default=None, metadata=TOLD_OTHERWISE)
    delay_seconds: float | None = field(default=None, metadata=TOLD_OTHERWISE)
    cpu_cores: float | None = field(default=None, metadata=TOLD_OTHERWISE)
    in_objective: float | None = field(default=None, metadata=TOLD_OTHERWISE)
    windows: tuple[DelayWindow, ...] = field(default=(), metadata=TOLD_OTHERWISE)
    lag_seconds: float | None = field(default=None, metadata=TOLD_OTHERWISE)
    variants: tuple[VariantInfo, ...] = ()
    answering_version: int | None = None
    problem: str = ""
    pinned: bool = False
    access: EndpointAccess = EndpointAccess.TENANT
    replicas: int = 1
    auto_replicas: bool = False
    replicas_reason: str = ""
    places: tuple[ReplicaInfo, ...] = ()
    keep: int = KEPT_VERSIONS
    retraining: str = ""
    awaited: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EndpointExplanation(Jsonable):
    """Why an endpoint has its share, and what was decided before.

    Attributes:
        endpoint: The endpoint, with its share and the reason of it.
        decisions: The newest first.
    """

    endpoint: EndpointInfo
    decisions: tuple[DecisionInfo, ...]
