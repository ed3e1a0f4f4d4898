"""On which node an endpoint is at home where the node that it came from was removed: pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle import variant_files, versions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tiercel.broker.lifecycle.serving_node import ServingNode
    from tiercel.core.endpoints import Endpoint, Version


def settled(endpoint: Endpoint, nodes: Mapping[str, ServingNode]) -> Endpoint:
    """The endpoint at home on a node that answers with what is live, where its home was removed.

    Versions whose files that node has are at home there as well. The same object where everything stays.
    """
    live, home = endpoint.live_of(""), nodes.get(endpoint.node_id)
    if live is None or variant_files.has_variants(endpoint) or home is None or not home.removed:
        return endpoint
    answering = [node for node in nodes.values() if node.online and node.answering == live.version]
    if not answering:
        return endpoint
    return _at_home_on(min(answering, key=lambda node: _suits(endpoint, node)), endpoint, live)


def why_gone(before: Endpoint, after: Endpoint, nodes: Mapping[str, ServingNode], *, has_store: bool) -> str:
    """Why a version cannot answer that was chosen, as its files were on a removed node only; empty where it can.

    Args:
        before: The endpoint.
        after: The same with the version live.
        nodes: All nodes.
        has_store: Whether there is an artefact store.
    """
    live, was = after.live_of(""), before.live_of("")
    if live is None or (was is not None and was.version == live.version) or not _lost_home(after, nodes):
        return ""
    if (has_store and live.stored is not None) or _having(live, nodes):
        return ""
    return (
        f"the files of version {live.version} are on no node but {after.node_id}, which was removed or has not "
        "connected since the broker began; start its agent again, or choose another version: "
        f"'tiercel models ls {after.name}' names them"
    )


def at_home(endpoint: Endpoint, nodes: Mapping[str, ServingNode]) -> Endpoint:
    """The endpoint at home where the files of what is live are, where the node that they came from was removed.

    The same object where that was not, or nobody has them.
    """
    live = endpoint.live_of("")
    if live is None or not _lost_home(endpoint, nodes) or not (having := _having(live, nodes)):
        return endpoint
    return _at_home_on(min(having, key=lambda node: _suits(endpoint, node)), endpoint, live)


def _lost_home(endpoint: Endpoint, nodes: Mapping[str, ServingNode]) -> bool:
    home = nodes.get(endpoint.node_id)
    return not variant_files.has_variants(endpoint) and (home is None or home.removed)


def _having(version: Version, nodes: Mapping[str, ServingNode]) -> list[ServingNode]:
    number, sha256 = version.version, version.sha256
    return [node for node in nodes.values() if node.online and sha256 == node.copies.get(number, "")]


def _suits(endpoint: Endpoint, node: ServingNode) -> tuple[bool, bool, str]:
    return node.leaving, node.id not in endpoint.replica_nodes, node.id


def _at_home_on(chosen: ServingNode, endpoint: Endpoint, live: Version) -> Endpoint:
    there = {each.version for each in endpoint.versions if chosen.copies.get(each.version) == each.sha256}
    found = tuple(
        replace(each, node_id=chosen.id if each.version in {live.version, *there} else endpoint.node_of(each))
        for each in endpoint.versions
    )
    members = tuple(name for name in endpoint.replica_nodes if name != chosen.id)
    changed = replace(endpoint, node_id=chosen.id, versions=found, replica_nodes=members)
    left = {*endpoint.left, (endpoint.node_id, "")} - versions.places_of(changed)
    return replace(changed, left=tuple(sorted(left)))
