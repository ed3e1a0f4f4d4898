"""What was asked of an endpoint on all of its nodes in the last few seconds, and how many nodes that takes."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.replica_count import LAG_SECONDS, LOOK_SECONDS, Reading, Trend, decide

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.actors.endpoint_states import Counted
    from tiercel.broker.actors.peers import Peers
    from tiercel.broker.lifecycle.serving_node import ServingNode
    from tiercel.core.endpoints import Endpoint

logger = logging.getLogger(__name__)


class ReplicaCount:
    """Decides for one endpoint whose job leaves that to the broker.

    Args:
        peers: Say what was counted.

    Attributes:
        reason: Why there are as many as there are, in plain words; empty where its job says how many.
    """

    def __init__(self, clock: Clock, peers: Peers) -> None:
        self._clock = clock
        self._peers = peers
        self._trend = Trend()
        self._looked_at = -math.inf
        self._before: Mapping[str, Counted] = {}
        self.reason = ""

    def begin_anew(self) -> None:
        """Something else is wanted of the endpoint: what was learned of it counts no more."""
        self._trend, self.reason = Trend(), ""

    def applied_to(self, endpoint: Endpoint, nodes: Mapping[str, ServingNode]) -> Endpoint:
        """The endpoint with as many replicas as it needs by now; the same object where these are as many."""
        if not endpoint.auto_replicas:
            return endpoint
        now = self._clock.alive()
        if now - self._looked_at < LOOK_SECONDS:
            return endpoint
        counted = self._peers.counted(endpoint.name)
        reading = reading_of(endpoint, nodes, self._before, counted)
        self._looked_at, self._before = now, counted
        decision = decide(endpoint.replicas, reading, self._trend, now)
        self._trend, self.reason = decision.trend, decision.reason
        if decision.count == endpoint.replicas:
            return endpoint
        logger.info("Endpoint %s shall answer on %d nodes: %s", endpoint.name, decision.count, decision.reason)
        return replace(endpoint, replicas=decision.count)


def reading_of(
    endpoint: Endpoint,
    nodes: Mapping[str, ServingNode],
    before: Mapping[str, Counted],
    counted: Mapping[str, Counted],
) -> Reading | None:
    """What was measured of an endpoint between two looks; None where a node that answers was not heard in between.

    Args:
        endpoint: The endpoint.
        nodes: What nodes are to it.
        before: What they had counted at the look before.
        counted: What they have counted by now.
    """
    shall = [nodes[name] for name in (endpoint.node_id, *endpoint.replica_nodes) if name in nodes]
    answering = [node for node in shall if node.online and node.answering]
    spans = {name: after.heard_at - before[name].heard_at for name, after in counted.items() if name in before}
    if not answering or any(spans.get(node.id, 0.0) <= 0 for node in answering):
        return None
    live = endpoint.live_version
    could = [
        node for node in nodes.values() if node.online and node.takes and not node.leaving and live not in node.failed
    ]
    parts = [_part_of(node, before[node.id], counted[node.id]) for node in answering]
    ended = sum(part.answers + part.failures for part in parts)
    in_time = sum(part.answers if endpoint.objective_seconds is None else part.on_time for part in parts)
    allowed = LAG_SECONDS if endpoint.objective_seconds is None else endpoint.objective_seconds
    may_use = sum(part.cores for part in parts)
    return Reading(
        answering=len(answering),
        able=len({node.id for node in (*answering, *could)}),
        whole=all(node in answering or node.lost or live in node.failed for node in shall),
        ended=ended,
        requests_per_second=sum(part.requests / part.seconds for part in parts),
        answers_per_second=sum(part.answers / part.seconds for part in parts),
        late=max(0.0, 1 - in_time / ended) if ended else 0.0,
        lagging=ended > 0 and any(part.lag_seconds > allowed for part in parts),
        under_way=sum((part.delay_seconds + part.requests * part.lag_seconds) / part.seconds for part in parts),
        busy=min(1.0, sum(part.cores_used for part in parts) / may_use) if may_use > 0 else 0.0,
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """What one node adds to a reading."""

    seconds: float
    requests: int
    answers: int
    failures: int
    on_time: int
    delay_seconds: float
    lag_seconds: float
    cores_used: float
    cores: float  # that others leave of the node; a policy's cap is none of it, since some give no more than it takes


def _part_of(node: ServingNode, before: Counted, after: Counted) -> _Part:
    earlier, later = before.usage, after.usage
    # What was held up on its way comes together: what the node says of its own time is nearer to the truth then.
    seconds = max(after.heard_at - before.heard_at, later.seconds - earlier.seconds)
    used = (later.cpu_seconds - earlier.cpu_seconds) / seconds
    by_others = (after.all_cpu_seconds - before.all_cpu_seconds) / seconds - used
    return _Part(
        seconds,
        later.requests - earlier.requests,
        later.answers - earlier.answers,
        later.failures - earlier.failures,
        later.on_time - earlier.on_time,
        later.delay_seconds - earlier.delay_seconds,
        after.lag_seconds or 0.0,
        used,
        max(node.cpu_cores - max(by_others, 0.0), used),
    )
