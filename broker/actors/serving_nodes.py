"""What a node is to an endpoint, out of what its agent says."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.actors.node_messages import ServedStatus
from tiercel.broker.lifecycle.replicas import NEEDED_BYTES
from tiercel.broker.lifecycle.serving_node import ServingNode
from tiercel.core.nodes import Drain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tiercel.broker.actors.node_messages import ServingReported
    from tiercel.broker.lifecycle.versions import WantedModel
    from tiercel.core.disk_use import NodeDisk
    from tiercel.core.nodes import Node


def serving_node(
    node: Node,
    endpoint: str,
    said: ServingReported,
    wanted: Iterable[WantedModel],
    disk: NodeDisk | None,
    *,
    lost: bool,
    removed: bool = False,
) -> ServingNode:
    """What a node is to an endpoint.

    Args:
        node: The node as it is.
        endpoint: The endpoint.
        said: What its agent said last of its inference server.
        wanted: What is wanted there of the endpoint.
        disk: What takes room there, where that is known.
        lost: Whether it is silent for longer than its lease.
        removed: Whether it is no node any more.
    """
    here = said.served.get((endpoint, ""), ServedStatus())
    failed = {version: reason for (name, version), reason in said.failed.items() if name == endpoint}
    # What is wanted while the inference server starts is not in force either, and that is no word about a version.
    problem = here.problem if said.http or said.local_http else ""
    copies = {version: sha256 for (name, version), sha256 in said.copies.items() if name == endpoint}
    # Nor is it one where its files are not there: it gets them.
    asked = {each.version for each in wanted} - {0, here.version}
    refused = {version: problem for version in asked & copies.keys() if problem}
    return ServingNode(
        node.id,
        online=node.online,
        lost=lost,
        removed=removed,
        takes=bool(node.serving_http) and (disk is None or disk.free_bytes >= NEEDED_BYTES),
        leaving=node.drain is not Drain.NO,
        answering=here.version,
        variants={
            variant: status.version
            for (name, variant), status in said.served.items()
            if name == endpoint and variant and status.version
        },
        copies=copies,
        failed=failed | refused,
        refused=refused,
        crowd=len(said.served),
        cpu_cores=node.cpu_cores,
    )


def answering_at(node: Node, heard: ServingReported) -> Node:
    """The node with the addresses that its agent says of its inference server."""
    return replace(
        node,
        serving_http=heard.http,
        serving_grpc=heard.grpc,
        local_http=heard.local_http,
        local_grpc=heard.local_grpc,
    )
