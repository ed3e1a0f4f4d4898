"""The node of an endpoint with variants, and how all of them go to another one: pure.

All variants answer on one node, their home. It gets back from the artefact store what it lost. Where it is lost itself,
and the store has all that answers, another one takes its place. Where it is to be emptied, another one gets copies of
all that answers and becomes the home once it has them; the first one goes on until that one answers with all of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle import versions
from tiercel.broker.lifecycle.versions import VersionFiles, WantedModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tiercel.broker.lifecycle.serving_node import ServingNode
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


def successor(endpoint: Endpoint, nodes: Mapping[str, ServingNode]) -> ServingNode | None:
    """The node that is to take the place of a home that is to be emptied; None where it is not, or there is nobody.

    The one that has most of the files already is first: once it has begun to get them, it stays the same.
    """
    home, live = nodes.get(endpoint.node_id), endpoint.live
    if home is None or not home.leaving or home.lost or not live or not all(each.variant for each in live):
        return None
    numbers = {each.version for each in live}
    able = [each for each in nodes.values() if each is not home and each.online and each.takes and not each.leaving]
    return min(
        able,
        key=lambda node: (bool(numbers & node.failed.keys()), len(_lacked(node, live)), node.crowd, node.id),
        default=None,
    )


def passed_on(endpoint: Endpoint, nodes: Mapping[str, ServingNode]) -> tuple[Version, ...]:
    """The versions whose files are on their way to the node that takes the home's place."""
    chosen = successor(endpoint, nodes)
    return () if chosen is None else _lacked(chosen, endpoint.live)


def _lacked(node: ServingNode, live: Iterable[Version]) -> tuple[Version, ...]:
    return tuple(each for each in live if node.copies.get(each.version) != each.sha256)


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
    chosen = successor(endpoint, nodes)
    receiver = endpoint.node_id if chosen is None else chosen.id
    lacked = lacking(endpoint, nodes) if chosen is None else _lacked(chosen, endpoint.live)
    there = [each for each in lacked if held.get(each.version) == each.sha256]
    copies = {each.variant: (VersionFiles(each.version, each.sha256),) for each in there}
    known = dict(versions.wanted_models(endpoint))
    if chosen is not None:
        known[chosen.id] = _waiting_there(endpoint, known.get(chosen.id, ()))
    return {
        node_id: tuple(
            replace(
                _while_needed(endpoint, nodes, node_id, model),
                copies=copies.get(model.variant, ()) if node_id == receiver else (),
                sends=tuple(each for each in sends.get(node_id, ()) if variant_of[each.version] == model.variant),
            )
            for model in models
        )
        for node_id, models in known.items()
    }


def _waiting_there(endpoint: Endpoint, models: Iterable[WantedModel]) -> tuple[WantedModel, ...]:
    """What the node that is to take the home's place has to keep of what answers."""
    before = {model.variant: model for model in models}
    for each in endpoint.live:
        model = before.get(each.variant, WantedModel(endpoint.name, each.variant, 0, ()))
        before[each.variant] = replace(model, kept=tuple(sorted({*model.kept, each.version})))
    return tuple(before[variant] for variant in sorted(before))


def _while_needed(
    endpoint: Endpoint, nodes: Mapping[str, ServingNode], node_id: str, model: WantedModel
) -> WantedModel:
    """A node that the endpoint has left goes on until the home answers with all, and keeps the files until it stops."""
    node, home, live = nodes.get(node_id), nodes.get(endpoint.node_id), endpoint.live_of(model.variant)
    if model.version or node is None or home is None or node is home or live is None:
        return model
    if node.variants.get(model.variant) != live.version or node.copies.get(live.version) != live.sha256:
        return model
    answers = home.online and all(home.variants.get(each.variant) == each.version for each in endpoint.live)
    kept = tuple(sorted({*model.kept, live.version}))
    return replace(model, version=0 if answers else live.version, kept=kept)


def moved(endpoint: Endpoint, nodes: Mapping[str, ServingNode], *, has_store: bool = True) -> Endpoint:
    """The endpoint with all that answers on one node: another one than before where that is lost, or to be emptied.

    It leaves a node that is to be emptied once another one has all that answers. It leaves one that lacks files which
    another one has, too: one that was lost came back before the store had given
    them. And where a run that went on there delivers, what answers elsewhere follows. The store has all of it; versions
    that it lacks are where they were, for when their node is back. The same object where everything stays.

    Args:
        endpoint: The endpoint.
        nodes: All nodes.
        has_store: Whether there is an artefact store.
    """
    home, live = nodes.get(endpoint.node_id), endpoint.live
    chosen = successor(endpoint, nodes)
    if chosen is not None:
        return _with_copies_at(endpoint, chosen) if _lacked(chosen, live) else _at(endpoint, chosen)
    if not has_store or not live or not all(each.variant and each.stored is not None for each in live):
        return endpoint
    able = [node for node in nodes.values() if node.online and node.takes and not (node.leaving or node.lost)]
    having = {node.id for node in able if not _lacked(node, live)}
    if home is not None and not home.lost:
        if any(endpoint.node_of(each) != home.id for each in live):
            return _at(endpoint, home)
        able = [node for node in able if node.id in having] if lacking(endpoint, nodes) else []
    if not able:
        return endpoint
    numbers = {each.version for each in live}
    chosen = min(
        able, key=lambda node: (node.id not in having, bool(numbers & node.failed.keys()), node.crowd, node.id)
    )
    return _at(endpoint, chosen)


def _with_copies_at(endpoint: Endpoint, node: ServingNode) -> Endpoint:
    """Remembers who gets copies, so that they are removed where another one takes the place after all, or nobody."""
    left = {*endpoint.left, *((node.id, each.variant) for each in endpoint.live if endpoint.node_of(each) != node.id)}
    return endpoint if left == set(endpoint.left) else replace(endpoint, left=tuple(sorted(left)))


def _at(endpoint: Endpoint, node: ServingNode) -> Endpoint:
    kept = {
        each.version
        for each in (*versions.kept(endpoint), *endpoint.live)
        if each.stored is not None or node.copies.get(each.version) == each.sha256
    }
    places = [(each, node.id if each.version in kept else endpoint.node_of(each)) for each in endpoint.versions]
    before = {(endpoint.node_of(each), each.variant) for each, place in places if place == node.id}
    found = tuple(replace(each, node_id=place) for each, place in places)
    left = {*endpoint.left, *before} - {(node.id, each.variant) for each in endpoint.versions}
    return replace(endpoint, node_id=node.id, versions=found, left=tuple(sorted(left)))
