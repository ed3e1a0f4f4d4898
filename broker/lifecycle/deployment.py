"""Files that somebody deploys as versions of an endpoint, without any job: what is taken, where it goes, when; pure.

A file waits as one of the endpoint's ``coming`` until its node answers with it or refuses it. There is one at a time
under way, so that they become versions in the order in which they came.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.endpoint import version_of
from tiercel.broker.lifecycle.replicas import NEEDED_BYTES, lot
from tiercel.broker.lifecycle.versions import kept, places_of, why_different, why_held
from tiercel.core.deploying import MAX_COMING
from tiercel.core.endpoints import Delivery, DeliveryState, Deployment, Verdict, deployment_id
from tiercel.core.errors import EndpointBusyError, NotFoundError, OverloadedError, UnavailableError, wrong_field

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tiercel.broker.lifecycle.serving_node import ServingNode
    from tiercel.core.deploying import Deploy
    from tiercel.core.endpoints import Endpoint, Signature
    from tiercel.core.jobs import Job


@dataclass(frozen=True, slots=True)
class Arrived:
    """A file that is here as a whole, and what was said of it."""

    deploy: Deploy
    by: str  # who sent it
    signature: Signature  # what the model takes and gives


def accepted(
    endpoint: Endpoint, arrived: Arrived, nodes: Mapping[str, ServingNode], now: float, served: int = 0
) -> tuple[Endpoint, Deployment]:
    """Reserve the next version's number for a file that has arrived.

    Args:
        endpoint: The endpoint as it is.
        arrived: The file.
        nodes: What nodes are to the endpoint.
        now: Seconds since the Unix epoch.
        served: The highest version of the endpoint that answers anywhere, which a new broker may not know.

    Raises:
        InvalidSpecError: It takes or gives something else than what answers.
        EndpointBusyError: The endpoint has variants.
        OverloadedError: As many others are on their way as may be.
        NotFoundError: There is no node of the name that was given.
        UnavailableError: No node can answer with it now.
    """
    deploy = arrived.deploy
    check_open(endpoint)
    if len(endpoint.coming) >= MAX_COMING:
        raise OverloadedError(
            f"endpoint {endpoint.name!r} has {MAX_COMING} files that are being deployed; try again when one of them is"
        )
    live = endpoint.live_of("")
    why = why_different(live, arrived.signature) if live is not None and not deploy.replace else ""
    if why:
        raise wrong_field("file", f"{why}; deploy it to another endpoint, or let it answer all the same (replace)")
    node_id = place_for(endpoint, nodes, deploy.node_id)
    number = max(endpoint.next_version, served + 1)
    delivery = Delivery(
        deployment_id(endpoint.name, number),
        "",
        tier=0,
        target=deploy.value or 0.0,
        endpoint=endpoint.name,
        version=number,
        state=DeliveryState.LOADING,
        requested_at=now,
        value=deploy.value,
        sha256=deploy.model.sha256,
        signature=arrived.signature,
        size_bytes=deploy.model_bytes,
        deployed_by=arrived.by,
        file=deploy.file,
        cheap_variants=deploy.cheap_variants,
    )
    metric = deploy.metric if deploy.value is not None else ""
    deployment = Deployment(delivery, node_id, metric, deploy.direction, deploy.replace)
    return replace(endpoint, next_version=number + 1, coming=(*endpoint.coming, deployment)), deployment


def repeated(endpoint: Endpoint, deploy: Deploy) -> Delivery | None:
    """What a file is already that is deployed once more, such as by a command whose broker died; None for another one.

    It is the last that is on its way; else the version that answers, or the newest one. What whoever deploys wants
    otherwise makes a version of its own: another value, another node, a cheap variant, or that it answers all the same.
    """
    said = (deploy.model.sha256, deploy.metric, deploy.value, deploy.direction)
    if deploy.cheap_variants:
        return None
    for coming in endpoint.coming[-1:]:
        delivery, measured = coming.delivery, coming.delivery.value is not None
        known = (delivery.sha256, coming.metric, delivery.value, coming.direction if measured else deploy.direction)
        is_as_wanted = deploy.node_id in {"", coming.node_id} and deploy.replace == coming.may_replace
        return delivery if known == said and is_as_wanted and not delivery.cheap_variants else None
    live = endpoint.live_of("")
    for version in (live, *endpoint.versions[-1:]):
        if version is None or version.job_id or version.cheap_variants or version not in (live, *kept(endpoint)):
            continue
        known = (version.sha256, version.metric, version.value, version.direction or deploy.direction)
        is_as_wanted = deploy.node_id in {"", version.node_id} and (version == live or not deploy.replace)
        if known == said and is_as_wanted:
            return Delivery(
                deployment_id(endpoint.name, version.version),
                "",
                tier=0,
                target=version.value or 0.0,
                endpoint=endpoint.name,
                version=version.version,
                state=DeliveryState.DELIVERED,
                requested_at=version.delivered_at,
            )
    return None


def check_open(endpoint: Endpoint, jobs: Iterable[Job] = ()) -> None:
    """Check that files may be deployed to an endpoint.

    Args:
        endpoint: The endpoint.
        jobs: The jobs of all tenants that something can still happen to.

    Raises:
        EndpointBusyError: It has variants, which jobs feed.
    """
    feeding = {job.spec.variant for job in jobs if job.spec.endpoint == endpoint.name}
    variants = sorted(({version.variant for version in endpoint.versions} | feeding) - {""})
    if variants:
        raise EndpointBusyError(
            f"endpoint: {endpoint.name!r} has variants ({', '.join(variants)}), to which no file can be deployed; "
            "choose another name",
            field="endpoint",
        )


def place_for(endpoint: Endpoint, nodes: Mapping[str, ServingNode], node_id: str) -> str:
    """The node that shall answer with a file first: the one that is named, else the endpoint's home, else a quiet one.

    Raises:
        NotFoundError: There is no node of that name.
        UnavailableError: None can answer now.
    """
    if node_id and node_id not in nodes:
        raise NotFoundError(f"node_id: there is no node {node_id[:64]!r}; 'tiercel nodes' lists them", field="node_id")
    able = [node for node in nodes.values() if node.online and node.takes and not node.leaving]
    able = [node for node in able if node_id in {"", node.id}]
    if not able:
        who = f"node {node_id} does not" if node_id else "no node does"
        raise UnavailableError(
            f"{who} answer for models now: away, drained, without an inference server, or with less than "
            f"{NEEDED_BYTES // 1024**2} MiB free on its disk ('tiercel nodes' says which); try again later"
        )
    return min(able, key=lambda node: (node.id != endpoint.node_id, node.crowd, lot(endpoint, node))).id


def judged(endpoint: Endpoint, deployment: Deployment) -> Delivery:
    """The delivery of a file whose turn it is, with the word whether it shall answer."""
    version = version_of(deployment.delivery, deployment.metric, deployment.direction, deployment.node_id)
    held = why_held(endpoint, version, may_replace=deployment.may_replace)
    return replace(deployment.delivery, verdict=Verdict.HELD if held else Verdict.LIVE)


def without(endpoint: Endpoint, delivery: Delivery) -> Endpoint:
    """The endpoint once a file is a version, or never will be: its node, which may not have heard that, keeps nothing.

    Args:
        endpoint: The endpoint.
        delivery: The delivery of the file, which is over.
    """
    over = [each for each in endpoint.coming if each.delivery.id == delivery.id]
    coming = tuple(each for each in endpoint.coming if each not in over)
    if delivery.state is DeliveryState.DELIVERED:
        return replace(endpoint, coming=coming)
    left = {*endpoint.left, *((each.node_id, "") for each in over)} - places_of(endpoint)
    members = {(name, "") for name in endpoint.replica_nodes}
    return replace(endpoint, coming=coming, left=tuple(sorted({*endpoint.left, *(left - members)})))


def why_lost(deployment: Deployment, node: ServingNode | None, held: Mapping[int, str], *, is_late: bool) -> str:
    """Why a file under way can become no version any more, in plain words; empty while it can.

    Args:
        deployment: The file.
        node: What its node is to the endpoint; None where that is not known yet.
        held: SHA-256 of the versions whose files the broker holds, by number.
        is_late: Whether its node has been waited for long enough.
    """
    delivery = deployment.delivery
    if held.get(delivery.version) != delivery.sha256:
        return "the broker has lost it; deploy it again"
    if node is not None and node.lost:
        return f"node {deployment.node_id} went away before it answered with it; deploy it again"
    if is_late:
        return f"node {deployment.node_id} did not answer with it in time; see its agent's log, then deploy it again"
    return ""
