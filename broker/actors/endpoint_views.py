"""An endpoint as the scheduler is shown it: on its home, and on other nodes that answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.actors.endpoint_states import name_on
from tiercel.broker.scheduling.interface import EndpointView
from tiercel.core.jobs import Direction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tiercel.broker.lifecycle.serving_node import ServingNode
    from tiercel.core.endpoints import Endpoint


def view_of(endpoint: Endpoint, tenant_weight: float) -> EndpointView | None:
    """An endpoint as a policy may see it, its load and share left out; None while no version of it is live."""
    if not endpoint.live or not endpoint.node_id:
        return None
    values = [version.value for version in endpoint.live if version.direction is Direction.MAX]
    fractions = [value for value in values if value is not None and 0 <= value <= 1]
    return EndpointView(
        name=endpoint.name,
        tenant=endpoint.tenant,
        node_id=endpoint.node_id,
        tenant_weight=tenant_weight,
        objective_seconds=endpoint.objective_seconds,
        # Of variants the best one: what answers are worth while there is time.
        quality=max(fractions) if len(fractions) == len(endpoint.live) else None,
    )


def views_of_copies(
    endpoint: Endpoint, home: EndpointView | None, nodes: Mapping[str, ServingNode]
) -> tuple[EndpointView, ...]:
    """The same on each other node that answers with what is live: what is asked there takes of that node."""
    return tuple(
        replace(home, name=name_on(endpoint.name, name), node_id=name)
        for name in endpoint.replica_nodes
        if home is not None and name in nodes and nodes[name].answering == endpoint.live_version
    )
