"""The cluster's numbers as Prometheus reads them, from what ``tiercel status`` tells: base units, and few labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.core.jobs import JobState
from tiercel.core.prometheus import Family

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tiercel.core.status import ClusterStatus, EndpointStatus, NodeStatus

MAX_ENDPOINTS = 500
"""Of so many, by name, it is told how each does; they are all counted."""

_OF_NODES: tuple[tuple[str, str, Callable[[NodeStatus], float]], ...] = (
    ("online", "Whether the node answers", lambda node: node.online),
    ("jobs", "Jobs that hold something of the node", lambda node: node.jobs),
    ("cpu_cores", "Cores that jobs may use", lambda node: node.cpu_cores),
    (
        "cpu_cores_asked",
        "Cores that the jobs there ask for; it may be more than there are",
        lambda n: n.cpu_cores_asked,
    ),
    ("memory_bytes", "Memory that jobs may use", lambda node: node.memory_bytes),
    ("memory_reserved_bytes", "Memory that the jobs there have reserved", lambda node: node.memory_reserved_bytes),
    ("accelerators", "Accelerators of the node", lambda node: node.accelerators),
    ("accelerators_held", "Accelerators of which a job holds a part", lambda node: node.accelerators_held),
    ("accelerator_problems", "Accelerators that are not well", lambda node: len(node.accelerator_problems)),
    ("disk_free_bytes", "What its disk has left; 0 while nobody knows", lambda node: node.disk_free_bytes),
    ("disk_size_bytes", "What its disk has in all; 0 while nobody knows", lambda node: node.disk_total_bytes),
)
_OF_ENDPOINTS: tuple[tuple[str, str, Callable[[EndpointStatus], float]], ...] = (
    ("live_version", "The version that shall answer", lambda endpoint: endpoint.live_version),
    ("nodes", "Nodes on which it shall answer", lambda endpoint: len(endpoint.nodes)),
    ("nodes_answering", "Nodes on which it does", lambda endpoint: len(endpoint.answering)),
)


def families_of(status: ClusterStatus) -> list[Family]:
    """The cluster at a glance: all of it for an operator, for a tenant its own jobs and endpoints."""
    open_states = [state.value for state in JobState if not state.is_final]
    told = status.endpoints[:MAX_ENDPOINTS]
    return [
        _gauge("build_info", "The broker's version", [({"version": status.version}, 1)]),
        _gauge(
            "jobs",
            "Jobs that are not over, by state",
            [({"state": state}, status.jobs.get(state, 0)) for state in open_states],
        ),
        *(
            _gauge(f"node_{name}", words, [({"node": node.id}, value(node)) for node in status.nodes])
            for name, words, value in _OF_NODES
        ),
        _gauge("endpoints", "Endpoints with a version", [({}, len(status.endpoints))]),
        *(
            _gauge(
                f"endpoint_{name}",
                words,
                [({"endpoint": each.name, "tenant": each.tenant}, value(each)) for each in told],
            )
            for name, words, value in _OF_ENDPOINTS
        ),
        _gauge("problems", "What there is to see to; 'tiercel status' says it", [({}, len(status.problems()))]),
    ]


def _gauge(name: str, words: str, samples: Sequence[tuple[dict[str, str], float]]) -> Family:
    return Family(f"tiercel_{name}", words, samples)
