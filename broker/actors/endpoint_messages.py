"""What an endpoint's actor is told."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle import drift, promises, retraining, versions
from tiercel.core.jobs import AUTO_REPLICAS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Sequence

    from tiercel.broker.lifecycle.deployment import Arrived
    from tiercel.broker.lifecycle.drift import Asked
    from tiercel.broker.lifecycle.endpoint import DeliveryReport
    from tiercel.broker.lifecycle.promises import Heard
    from tiercel.core.checkpoints import Artefact
    from tiercel.core.deploying import Deploy
    from tiercel.core.endpoint_access import EndpointAccess
    from tiercel.core.endpoints import Delivery, Endpoint
    from tiercel.core.events import Event
    from tiercel.core.jobs import Job, JobSpec, TierStatus
    from tiercel.core.retraining import Retraining


@dataclass(frozen=True, slots=True)
class DeliverTier:
    """A job reached a tier; asking again, for instance from another node, is harmless."""

    job: Job
    tier: TierStatus


@dataclass(frozen=True, slots=True)
class DeliveryReported:
    """A node says how far a delivery is."""

    node_id: str
    delivery_id: str
    report: DeliveryReport


@dataclass(frozen=True, slots=True)
class DeliveryAbandoned:
    """Nobody can carry out a delivery any more."""

    delivery_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class TermsSet:
    """What a job that feeds it wants of it: answers within so many seconds, if it says so, on so many nodes.

    ``replicas`` is :data:`.AUTO_REPLICAS` where the broker is to say on how many: at first on as many as before.
    """

    objective_seconds: float | None
    replicas: int

    @classmethod
    def of(cls, spec: JobSpec) -> TermsSet:
        """What a job says."""
        return cls(spec.endpoint_objective_seconds, spec.replicas)

    def applied_to(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint as the job wants it."""
        objective = endpoint.objective_seconds if self.objective_seconds is None else self.objective_seconds
        auto = self.replicas == AUTO_REPLICAS
        count = endpoint.replicas if auto else self.replicas
        return replace(endpoint, objective_seconds=objective, replicas=count, auto_replicas=auto)


@dataclass(frozen=True, slots=True)
class NodesChanged:
    """Nodes are otherwise than before, or time passed."""


@dataclass(frozen=True, slots=True)
class VersionStored:
    """The artefact store has the files of a version, or (None) has them no more."""

    version: int
    sha256: str
    stored: Artefact | None

    def applied_to(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint with that; the same object where that is nothing new."""
        known = next((each for each in endpoint.versions if each.version == self.version), None)
        if known is None or known.sha256 != self.sha256 or known.stored == self.stored:
            return endpoint
        changed = replace(known, stored=self.stored)
        return replace(endpoint, versions=tuple(changed if each is known else each for each in endpoint.versions))


@dataclass(frozen=True, slots=True)
class AccessSet:
    """Its tenant says who may ask it."""

    access: EndpointAccess

    def applied_to(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint with that."""
        return replace(endpoint, access=self.access)


@dataclass(frozen=True, slots=True)
class VersionChosen:
    """Its tenant wants a version to answer; None for the newest or, to go back, for the one before."""

    version: int | None
    back: bool = False
    pin: bool = False
    instead_of: int = 0  # to go back without a version: the one that answered then

    def applied_to(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint when that version answers.

        Raises:
            NotFoundError: It has no such version.
            InvalidSpecError: It cannot answer, or it is not clear which is meant.
        """
        if self.back:
            return versions.rolled_back(endpoint, self.version, self.instead_of)
        return versions.promoted(endpoint, self.version, pin=self.pin)


@dataclass(frozen=True, slots=True)
class CandidateChosen:
    """A version that was held is better than what answers, by what that is in use."""

    version: int
    instead_of: int  # the version that answers

    def applied_to(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint when it answers; as it was where something else happened meanwhile."""
        return versions.let_answer(endpoint, self.version, self.instead_of)


@dataclass(frozen=True, slots=True)
class VersionRemoved:
    """Its tenant wants the files of a version removed."""

    version: int

    def applied_to(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint without them; see :func:`.versions.removed`."""
        return versions.removed(endpoint, self.version)


@dataclass(frozen=True, slots=True)
class KeptSet:
    """Its tenant says of how many versions files are kept."""

    count: int

    def applied_to(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint with that; see :func:`.versions.keeping`."""
        return versions.keeping(endpoint, self.count)


@dataclass(frozen=True, slots=True)
class FilesAsked:
    """Its tenant wants the files of a version, which the broker is to hold for a while."""

    version: int


@dataclass(frozen=True, slots=True)
class FileArrived:
    """Somebody deploys a file."""

    arrived: Arrived
    put: Callable[[str, int], Awaitable[None]]  # puts it where the files of an endpoint's version are
    outcome: asyncio.Future[Delivery]  # what becomes of it: a delivery that is over, or why it is not taken

    @property
    def deploy(self) -> Deploy:
        """What was said of it."""
        return self.arrived.deploy


@dataclass(frozen=True, slots=True)
class FileAnnounced:
    """Somebody is about to send a file, unless it is there already."""

    deploy: Deploy  # what was said of it
    outcome: asyncio.Future[Delivery]  # what becomes of it; cancelled where it is another one


def terms_of(deploy: Deploy, endpoint: Endpoint) -> Endpoint:
    """An endpoint as whoever deploys to it wants it; what was not said stays."""
    auto = AUTO_REPLICAS if endpoint.auto_replicas else endpoint.replicas
    replicas = auto if deploy.replicas is None else deploy.replicas
    access = endpoint.access if deploy.access is None else deploy.access
    return replace(TermsSet(deploy.objective_seconds, replicas).applied_to(endpoint), access=access)


@dataclass(frozen=True, slots=True)
class PromisesJudged:
    """It is to be looked whether its versions are as often right as they should be, and are asked what they were."""

    heard: Heard
    now: float
    asked: Asked = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RetrainingNoted:
    """What is known of a retraining, in place of what was; None for one that never began and is not wanted any more."""

    before: Retraining | None
    after: Retraining | None

    def applied_to(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint with that; as it was if it knows another one, as it was deleted meanwhile."""
        known = endpoint.retrainings
        if self.before is not None and self.before not in known:
            return endpoint
        if self.before is None and (not endpoint.versions or retraining.open_one(endpoint) is not None):
            return endpoint
        if self.after is None:
            return replace(endpoint, retrainings=tuple(each for each in known if each != self.before))
        return replace(endpoint, retrainings=retraining.with_one(known, self.after))


def changed(
    message: AccessSet | VersionRemoved | KeptSet | RetrainingNoted | PromisesJudged, endpoint: Endpoint
) -> tuple[Endpoint, Sequence[Event]]:
    """An endpoint with what a message says of it, and what there is to tell."""
    if isinstance(message, PromisesJudged):
        endpoint, news = promises.judged(endpoint, message.heard, message.now)
        endpoint, more = drift.judged(endpoint, message.asked, message.now)
        return endpoint, (*news, *more)
    return message.applied_to(endpoint), ()


@dataclass(frozen=True, slots=True)
class EndpointDeleted:
    """Its tenant wants it gone; no job feeds it."""


EndpointMessage = (
    DeliverTier
    | DeliveryReported
    | DeliveryAbandoned
    | TermsSet
    | AccessSet
    | VersionChosen
    | CandidateChosen
    | VersionRemoved
    | KeptSet
    | FilesAsked
    | FileArrived
    | FileAnnounced
    | PromisesJudged
    | RetrainingNoted
    | EndpointDeleted
    | NodesChanged
    | VersionStored
)
