"""Files of an endpoint with variants in the artefact store, and its way to another node when its own is lost: pure.

All variants answer on one node. That node gets back from the store what it lost; where it is lost itself, and the store
has all that answers, another one takes its place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle import versions
from tiercel.broker.lifecycle.versions import VersionFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tiercel.broker.lifecycle.serving_node import ServingNode
    from tiercel.broker.lifecycle.versions import WantedModel
    from tiercel.core.endpoints import Endpoint, Version


def has_variants(endpoint: Endpoint) -> bool:
    """Whether an endpoint has variants; it has them all or none."""
    return any(version.variant for version in endpoint.versions)


def lacking(endpoint: Endpoint, nodes: Mapping[str, ServingNode]) -> tuple[Version, ...]:
    """The versions that shall answer on the node of all variants, of which it has no files any more."""
    home = nodes.get(endpoint.node_id)
    if home is None or not (home.online and home.takes):
        return ()
    return tuple(
        each
        for each in endpoint.live
        if each.variant
        and each.stored is not None
        and endpoint.node_of(each) == home.id
        and home.copies.get(each.version) != each.sha256
    )


def wanted(
    endpoint: Endpoint,
    nodes: Mapping[str, ServingNode],
    held: Mapping[int, str],
    sends: Mapping[str, Iterable[VersionFiles]],
) -> Mapping[str, tuple[WantedModel, ...]]:
    """What each node shall do with the versions of an endpoint with variants, by node.

    Args:
        endpoint: The endpoint.
        nodes: All nodes.
        held: SHA-256 of the versions whose files the broker holds, by number.
        sends: What nodes shall send to the broker, by node.
    """
    variant_of = {each.version: each.variant for each in endpoint.versions}
    there = [each for each in lacking(endpoint, nodes) if held.get(each.version) == each.sha256]
    copies = {each.variant: (VersionFiles(each.version, each.sha256),) for each in there}
    return {
        node_id: tuple(
            replace(
                model,
                copies=copies.get(model.variant, ()) if node_id == endpoint.node_id else (),
                sends=tuple(each for each in sends.get(node_id, ()) if variant_of[each.version] == model.variant),
            )
            for model in models
        )
        for node_id, models in versions.wanted_models(endpoint).items()
    }


def moved(endpoint: Endpoint, nodes: Mapping[str, ServingNode]) -> Endpoint:
    """The endpoint with all that answers on one node: another one than before where that is lost.

    It leaves a node that lacks files which another one has, too: one that was lost came back before the store had given
    them. And where a run that went on there delivers, what answers elsewhere follows. The store has all of it; versions
    that it lacks are where they were, for when their node is back. The same object where everything stays.
    """
    home, live = nodes.get(endpoint.node_id), endpoint.live
    if not live or not all(each.variant and each.stored is not None for each in live):
        return endpoint
    able = [node for node in nodes.values() if node.online and node.takes and not (node.leaving or node.lost)]
    having = {node.id for node in able if all(node.copies.get(each.version) == each.sha256 for each in live)}
    if home is not None and not home.lost:
        if any(endpoint.node_of(each) != home.id for each in live):
            return _at(endpoint, home.id)
        able = [node for node in able if node.id in having] if lacking(endpoint, nodes) else []
    if not able:
        return endpoint
    numbers = {each.version for each in live}
    chosen = min(
        able, key=lambda node: (node.id not in having, bool(numbers & node.failed.keys()), node.crowd, node.id)
    )
    return _at(endpoint, chosen.id)


def _at(endpoint: Endpoint, node_id: str) -> Endpoint:
    kept = {each.version for each in (*versions.kept(endpoint), *endpoint.live) if each.stored is not None}
    places = [(each, node_id if each.version in kept else endpoint.node_of(each)) for each in endpoint.versions]
    before = {(endpoint.node_of(each), each.variant) for each, place in places if place == node_id}
    found = tuple(replace(each, node_id=place) for each, place in places)
    left = {*endpoint.left, *before} - {(node_id, each.variant) for each in endpoint.versions}
    return replace(endpoint, node_id=node_id, versions=found, left=tuple(sorted(left)))
