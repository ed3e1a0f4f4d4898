"""What must hold, beyond the spec itself, before a job is accepted."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.actors.endpoint_queues import MAX_QUEUED, QueuePlace, is_asleep, last_place
from tiercel.broker.scheduling.feasible import Need, first_unmet
from tiercel.broker.scheduling.interface import JobView
from tiercel.broker.scheduling.views import needed_data, needed_labels, node_view
from tiercel.core.durations import in_words
from tiercel.core.errors import EndpointBusyError, InvalidSpecError, QuotaExceededError, wrong_field
from tiercel.core.figures import size
from tiercel.core.nodes import Drain
from tiercel.core.tenant_use import seconds_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tiercel.broker.scheduling.interface import NodeView
    from tiercel.core.endpoints import Endpoint
    from tiercel.core.jobs import Job, JobSpec, Resources
    from tiercel.core.nodes import Accelerator, Node
    from tiercel.core.tenant_use import TenantUse
    from tiercel.core.tenants import Tenant


# As many as the inference server takes.
MAX_VARIANTS = 16


def check_quota(tenant: Tenant, jobs: Iterable[Job]) -> None:
    """Check that the tenant may have one more job; ``jobs`` are those of all tenants that are not over.

    Raises:
        QuotaExceededError: It has as many unfinished jobs as it may have.
    """
    active = sum(job.tenant == tenant.name and not job.state.is_final for job in jobs)
    if active >= tenant.max_active_jobs:
        raise QuotaExceededError(
            f"tenant {tenant.name} has {active} unfinished jobs and may have {tenant.max_active_jobs}; "
            "wait for one to finish or cancel one"
        )


def check_hours(tenant: Tenant, spec: JobSpec, use: TenantUse, half_life: float) -> None:
    """Check that the tenant's jobs have not used all that they may; ``use`` is what they have, as of now.

    What they have used of accelerators counts for jobs that ask for some.

    Raises:
        QuotaExceededError: They have.
    """
    wanted = [("cores", use.core_seconds, tenant.max_core_hours)]
    if spec.resources.accelerators:
        wanted.append(("accelerators", use.accelerator_seconds, tenant.max_accelerator_hours))
    for what, seconds, hours in wanted:
        used = seconds / 3600
        if used >= hours:
            wait = seconds_until(used, hours, half_life)
            again = "ask the operator for more"
            if math.isfinite(wait):
                again = f"in {in_words(max(1, math.ceil(wait)))} it is less"
            raise QuotaExceededError(
                f"jobs of tenant {tenant.name} have used {used:.3g} hours of {what} and may have used {hours:.3g}, of "
                f"which half count after {in_words(half_life)}; {again}",
                seconds=min(max(wait, 60.0), half_life),
            )


def check_class(tenant: Tenant, spec: JobSpec) -> None:
    """Check that the tenant may use the priority class that a job names.

    Raises:
        InvalidSpecError: There is none of that name for it.
    """
    if spec.priority_class and not tenant.class_of(spec.priority_class).name:
        known = ", ".join(sorted(each.name for each in tenant.classes)) or "none"
        raise wrong_field(
            "priority_class",
            f"there is no class {spec.priority_class!r} that tenant {tenant.name} may use; there is {known}",
        )


def is_free(endpoint: Endpoint, jobs: Iterable[Job]) -> bool:
    """Whether an endpoint is but a name that anybody may take: nothing was delivered to it, or what was is deleted.

    Args:
        endpoint: The endpoint.
        jobs: The jobs of all tenants that something can still happen to.
    """
    return not (endpoint.versions or endpoint.coming) and all(job.spec.endpoint != endpoint.name for job in jobs)


def check_unfed(endpoint: Endpoint, jobs: Iterable[Job]) -> None:
    """Check that nothing can be delivered to an endpoint any more; ``jobs`` as for :func:`is_free`.

    Raises:
        EndpointBusyError: A job feeds it, or a file is being deployed to it.
    """
    if endpoint.coming:
        raise EndpointBusyError(
            f"endpoint: {endpoint.coming[0].delivery.file!r} is being deployed to {endpoint.name!r}; wait for it, then "
            "delete the endpoint",
            field="endpoint",
        )
    for job in jobs:
        if job.spec.endpoint == endpoint.name:
            raise EndpointBusyError(
                f"endpoint: {endpoint.name!r} is being fed by job {job.id}; wait for it or cancel it, then delete the "
                "endpoint",
                field="endpoint",
            )


def check_endpoint(
    tenant: Tenant,
    spec: JobSpec,
    endpoint: Endpoint | None,
    jobs: Iterable[Job],
    *,
    may_queue: bool = False,
    now: float = math.inf,
) -> QueuePlace | None:
    """Check that a new job of the tenant may feed the endpoint that its spec names, or the variant of it.

    Args:
        tenant: The owner of the new job.
        spec: The new job's.
        endpoint: The endpoint, if there is one already.
        jobs: The jobs of all tenants that are not over.
        may_queue: Whether it may wait while another job feeds it.
        now: Seconds since the Unix epoch.

    Returns:
        Its place in the queue for it; None if it may feed it now.

    Raises:
        EndpointBusyError: It is somebody else's, another unfinished job feeds the same, or it has variants and the job
            names none, or the other way round; too many wait for it.
    """
    name = spec.endpoint
    if endpoint is not None and endpoint.tenant != tenant.name:
        raise EndpointBusyError(f"endpoint: {name!r} belongs to another tenant; choose another name", field="endpoint")
    feeding = [job for job in jobs if job.spec.endpoint == name and not job.state.is_final]
    same = [job for job in feeding if job.spec.variant == spec.variant and not is_asleep(job, now)]
    present = next((job for job in same if not job.queued), same[0] if same else None)
    if present is not None and not may_queue:
        raise _fed(present)
    versions = endpoint.versions if endpoint is not None else ()
    known = {version.variant for version in versions} | {job.spec.variant for job in feeding}
    _check_variants(spec, known)
    return None if present is None else _check_queue(present, [job for job in same if job.queued])


def _check_queue(present: Job, queued: Sequence[Job]) -> QueuePlace:
    if len(queued) >= MAX_QUEUED:
        raise EndpointBusyError(
            f"queue: {len(queued)} jobs wait for endpoint {present.spec.endpoint!r} already, and more are not taken; "
            "wait for one of them, or choose another endpoint",
            field="queue",
        )
    return last_place(present, queued)


def _fed(job: Job) -> EndpointBusyError:
    spec = job.spec
    if not spec.variant:
        return EndpointBusyError(
            f"endpoint: {spec.endpoint!r} is being fed by job {job.id}; wait for it (queue: true), cancel it, or "
            "choose another name",
            field="endpoint",
        )
    return EndpointBusyError(
        f"variant: {spec.variant!r} of endpoint {spec.endpoint!r} is being fed by job {job.id}; wait for it "
        "(queue: true), cancel it, or choose another variant",
        field="variant",
    )


def _check_variants(spec: JobSpec, known: set[str]) -> None:
    """An endpoint either has variants or has none; ``known`` are those that it has versions or jobs of."""
    if spec.variant and "" in known:
        raise EndpointBusyError(
            f"variant: endpoint {spec.endpoint!r} has no variants but versions of its own; leave out the variant, or "
            "choose another endpoint",
            field="variant",
        )
    if known and not spec.variant and "" not in known:
        raise EndpointBusyError(
            f"endpoint: {spec.endpoint!r} has variants ({', '.join(sorted(known))}); name one of them or a new one, or "
            "choose another endpoint",
            field="endpoint",
        )
    if spec.variant not in known and len(known) >= MAX_VARIANTS:
        raise EndpointBusyError(
            f"variant: endpoint {spec.endpoint!r} has {len(known)} variants, and more are not taken; feed one of "
            f"{', '.join(sorted(known))}",
            field="variant",
        )


def warm_node_of(source: Job | None) -> str:
    """The node that has the checkpoint of the job with whose weights a new one begins; empty where there is none.

    Raises:
        InvalidSpecError: The job is not over, or has never run.
    """
    if source is None:
        return ""
    if not source.state.is_final:
        raise wrong_field(
            "warm_start",
            f"job {source.id!r} is {source.state.value}, and its weights still change; wait for it or cancel it first",
        )
    node_id = source.node_id or source.checkpoint_node
    if not node_id:
        raise wrong_field(
            "warm_start", f"job {source.id!r} has no checkpoint, as it has never run; leave out warm_start"
        )
    return node_id


def home_of(spec: JobSpec, endpoint: Endpoint | None, jobs: Iterable[Job], warm_node: str = "") -> str:
    """The only node that may run a new job, since other variants of its endpoint or its weights are there; or empty.

    Args:
        spec: The new job's.
        endpoint: The endpoint, if there is one already.
        jobs: The jobs of all tenants that are not over.
        warm_node: The node that has the weights with which it begins, or empty.

    Raises:
        InvalidSpecError: These are two nodes.
    """
    home = _home_of_variant(spec, endpoint, jobs)
    if home and warm_node and home != warm_node:
        raise wrong_field(
            "warm_start",
            f"the checkpoint of job {spec.warm_start!r} is on node {warm_node}, and the variants of "
            f"endpoint {spec.endpoint!r} are on node {home}; leave out warm_start, or feed another endpoint",
        )
    return home or warm_node


def _home_of_variant(spec: JobSpec, endpoint: Endpoint | None, jobs: Iterable[Job]) -> str:
    if not spec.variant:
        return ""
    if endpoint is not None and endpoint.node_id:
        return endpoint.node_id
    return next((job.node_id for job in jobs if job.spec.endpoint == spec.endpoint and job.run_active), "")


def check_feasible(spec: JobSpec, nodes: Sequence[Node]) -> None:
    """Check that one of the nodes could run the job if it were empty and all of it were well.

    Without any node the job may well wait, and so it may for an accelerator whose problem passes (an Xid, a reset), for
    a node that is drained now, and for one that is offline and alone has the data.

    Args:
        spec: The job's.
        nodes: Those that it may be on, the ones that are offline among them.

    Raises:
        InvalidSpecError: None could; ``field`` names the first need that none of them meets.
    """
    well = [replace(node, accelerators=_all_well(node.accelerators), drain=Drain.NO) for node in _asked(spec, nodes)]
    views = [node_view(node) for node in well]
    job = JobView(
        "",
        "",
        0.0,
        spec.direction,
        (),
        spec.resources,
        runtime=spec.runtime,
        image=spec.image,
        data=needed_data(spec),
        node_labels=needed_labels(spec),
    )
    need, left = first_unmet(job, views)
    if need is not None:
        field, message = _unmet(spec, need, left)
        raise InvalidSpecError(f"{field}: {message}", field=field)


def _asked(spec: JobSpec, nodes: Sequence[Node]) -> Sequence[Node]:
    """The nodes that a job is checked against: of those with its labels those online, or that alone have its data."""
    # Where none has its labels it is checked against none: it waits for one, whether or not there ever was one.
    labels = needed_labels(spec)
    nodes = [node for node in nodes if labels <= node.labels.items()]
    online = [node for node in nodes if node.online]
    wanted = needed_data(spec)
    if not wanted or not nodes:
        return online
    having = [node for node in nodes if wanted <= {each.name for each in node.data}]
    if not having:
        raise wrong_field("data", f"{_lacks_data(wanted, nodes)}")
    return online if any(node.online for node in having) else having


def _lacks_data(wanted: frozenset[str], nodes: Sequence[Node]) -> str:
    there = sorted({each.name for node in nodes for each in node.data})
    missing = sorted(wanted.difference(there))
    if missing:
        offered = f"there are {', '.join(there)}" if there else "none has any"
        return (
            f"no node has the data set {missing[0]!r}; {offered}; where it lies, 'tiercel node data add {missing[0]} "
            "PATH' offers it"
        )
    return f"no node has all of {', '.join(sorted(wanted))}; 'tiercel nodes' says which has which"


def _unmet(spec: JobSpec, need: Need, nodes: Sequence[NodeView]) -> tuple[str, str]:
    """The field that asks for more than any of these nodes has, and what to say of it."""
    wanted = spec.resources
    match need:
        case Need.RUNTIME | Need.HOME:
            return "runtime", f"no node offers {spec.runtime or 'any'!r}; there is {_offered(nodes)}"
        case Need.IMAGE:
            return "image", f"no node has {spec.image!r}; build it there (make image) or pull it, with its tag"
        case Need.DATA:
            have = "no node that could run it has all of"
            return "data", f"{have} {', '.join(sorted(needed_data(spec)))}; 'tiercel nodes' says which has which"
        case Need.LABELS:
            return "node_labels", "no node that could run it has them all; 'tiercel nodes' says which has which"
        case Need.CPU_CORES:
            most = f"{max(node.cpu_cores for node in nodes):g}"
            return (
                "resources.cpu_cores",
                f"{wanted.cpu_cores:g} cores are more than any node that could run it has ({most})",
            )
        case Need.MEMORY:
            largest = max(node.memory_bytes for node in nodes)
            return (
                "resources.memory_bytes",
                f"{size(wanted.memory_bytes)} is more than any node that could run it has ({size(largest)})",
            )
        case Need.ACCELERATORS | Need.OPEN:
            return _lacks_accelerators(wanted, nodes)


def _lacks_accelerators(wanted: Resources, nodes: Sequence[NodeView]) -> tuple[str, str]:
    enough = [node for node in nodes if len(node.accelerators) >= wanted.accelerators]
    if not enough:
        count = max(len(node.accelerators) for node in nodes)
        return (
            "resources.accelerators",
            f"{wanted.accelerators} are more than any node that could run it has ({count})",
        )
    largest = max(each.memory_bytes for node in enough for each in node.accelerators)
    return (
        "resources.accelerator_memory_bytes",
        f"{size(wanted.accelerator_memory_bytes)} is more than any node's accelerators have ({size(largest)} at most)",
    )


def _all_well(accelerators: Iterable[Accelerator]) -> tuple[Accelerator, ...]:
    return tuple(replace(each, problem="") for each in accelerators)


def _offered(nodes: Iterable[NodeView]) -> str:
    return ", ".join(sorted({runtime for node in nodes for runtime in node.runtimes})) or "none at all"
