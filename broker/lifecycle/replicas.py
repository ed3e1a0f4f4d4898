"""On which nodes the live version of an endpoint answers, and in which order they change to another: pure.

The node that a version was delivered on is its home. Others get copies of it (:func:`chosen` says which), and answer
with it once they have them. Where its home was removed, one of those that answer is its home from then on. Nobody
stops to answer before somebody else answers with what is live, and nobody goes on with what was live before once
somebody does.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle import variant_files, versions
from tiercel.broker.lifecycle.serving_node import ServingNode
from tiercel.broker.lifecycle.versions import VersionFiles, WantedModel

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tiercel.core.endpoints import Delivery, Endpoint, Version

# What a node needs to have left on its disk to be given copies: more than what makes its agent end jobs.
NEEDED_BYTES = 1024**3


@dataclass(frozen=True, slots=True)
class Upcoming:
    """A version that is about to be delivered and to answer."""

    files: VersionFiles  # what it is
    node_id: str  # where it is
    members: tuple[str, ...]  # nodes that shall have it before it answers anywhere


def spreads(endpoint: Endpoint, nodes: Mapping[str, ServingNode]) -> bool:
    """Whether an endpoint answers, or is to answer, on other nodes than its home as well."""
    live = endpoint.live_of("")
    return bool(endpoint.replicas > 1 or endpoint.replica_nodes) or (
        live is not None
        and any(each.answering == live.version and each.id != endpoint.node_id for each in nodes.values())
    )


def chosen(endpoint: Endpoint, nodes: Mapping[str, ServingNode]) -> tuple[str, ...]:
    """The nodes that shall have copies of what is live, beside its home; those that have them stay.

    A node that is lost, leaves or cannot answer is replaced where there is another one. What counts between those that
    could be added: who has files of it already, then how many endpoints answer there.
    """
    if variant_files.has_variants(endpoint):  # all of them answer on one node
        return ()
    home = nodes.get(endpoint.node_id)
    is_leaving = home is not None and home.leaving
    is_lost = home is None or home.lost
    live = endpoint.live_of("")
    # Others have it already, or get it from the artefact store.
    is_replaced = is_lost and bool(endpoint.replica_nodes or (live is not None and live.stored is not None))
    if not endpoint.node_id or (endpoint.replicas == 1 and not is_leaving and not is_replaced):
        return ()
    count = endpoint.replicas - (not (is_lost or is_leaving))
    others = [node for node in nodes.values() if node.id != endpoint.node_id and not node.leaving]
    before = [node for node in others if node.id in endpoint.replica_nodes]
    stay = [node for node in before if not node.lost]
    able = [node for node in others if node not in before and node.online and node.takes]
    found = sorted([*stay, *able], key=lambda node: _rank(endpoint, live, node))
    # One that is lost keeps its place where nobody takes it, and so its files for when it comes back.
    names = [node.id for node in [*found, *(node for node in before if node.lost)]][:count]
    kept = [name for name in endpoint.replica_nodes if name in names]
    return (*kept, *(name for name in names if name not in kept))


def _rank(endpoint: Endpoint, live: Version | None, node: ServingNode) -> tuple[bool, bool, bool, int, bytes]:
    failed = live is not None and live.version in node.failed
    has_files = node.answering > 0 or (live is not None and live.version in node.copies)
    return failed, node.id not in endpoint.replica_nodes, not has_files, node.crowd, lot(endpoint, node)


def lot(endpoint: Endpoint, node: ServingNode) -> bytes:
    """The same for the same endpoint and node, and different from endpoint to endpoint."""
    return hashlib.sha256(f"{endpoint.name}\0{node.id}".encode()).digest()


def spread(endpoint: Endpoint, nodes: Mapping[str, ServingNode]) -> Endpoint:
    """The endpoint with the nodes that shall have copies of it now; the same object where these are the same."""
    members = chosen(endpoint, nodes)
    if members == endpoint.replica_nodes:
        return endpoint
    places = versions.places_of(endpoint)
    gone = {(name, "") for name in endpoint.replica_nodes if name not in members} - places
    left = {*endpoint.left, *gone} - {(name, "") for name in members}
    return replace(endpoint, replica_nodes=members, left=tuple(sorted(left)))


def upcoming(endpoint: Endpoint, delivery: Delivery, node_id: str, nodes: Mapping[str, ServingNode]) -> Upcoming:
    """What is to be where before a delivery's version answers.

    Args:
        endpoint: The endpoint as it is.
        delivery: The delivery, which was judged.
        node_id: The node that has its model.
        nodes: All nodes.
    """
    members = () if delivery.variant else chosen(replace(endpoint, node_id=node_id), nodes)
    return Upcoming(VersionFiles(delivery.version, delivery.sha256, delivery.id), node_id, members)


def lacks_live(endpoint: Endpoint, nodes: Mapping[str, ServingNode]) -> bool:
    """Whether the home of what is live has no files of it any more, and they can be had elsewhere.

    So it is on another machine with the node's name, or where its disk lost them.
    """
    live, home = endpoint.live_of(""), nodes.get(endpoint.node_id)
    return (
        live is not None
        and (live.stored is not None or any(each.copies.get(live.version) == live.sha256 for each in nodes.values()))
        and home is not None
        and home.online
        and home.takes
        and home.answering != live.version
        and home.copies.get(live.version) != live.sha256
    )


def needed_files(
    endpoint: Endpoint,
    nodes: Mapping[str, ServingNode],
    coming: Iterable[Upcoming],
    held: Mapping[int, str],
    *,
    has_store: bool,
) -> tuple[VersionFiles, ...]:
    """The versions whose files the broker shall hold.

    With these a copy can be made whatever becomes of their home. Those that the artefact store lacks are on their way
    there, one at a time.

    Args:
        endpoint: The endpoint.
        nodes: All nodes.
        coming: Versions that are about to be delivered.
        held: SHA-256 of the versions whose files the broker holds, by number.
        has_store: Whether there is an artefact store.
    """
    live = endpoint.live_of("")
    is_copied = live is not None and (bool(endpoint.replica_nodes) or lacks_live(endpoint, nodes))
    found = [VersionFiles(live.version, live.sha256)] if live is not None and is_copied else []
    lacked = (*variant_files.lacking(endpoint, nodes), *variant_files.passed_on(endpoint, nodes))
    found += [VersionFiles(each.version, each.sha256) for each in dict.fromkeys(lacked)]
    found += [each.files for each in coming if each.members]
    if has_store and (files := _next_to_store(endpoint, nodes, held)) is not None and files not in found:
        found.append(files)
    return tuple(found)


def unstored(endpoint: Endpoint) -> tuple[Version, ...]:
    """The versions that the artefact store shall have and does not: what answers first, then the newest."""
    left = [version for version in versions.kept(endpoint) if version.stored is None]
    return tuple(sorted(left, key=lambda each: (each not in endpoint.live, -each.version)))


def _next_to_store(
    endpoint: Endpoint, nodes: Mapping[str, ServingNode], held: Mapping[int, str]
) -> VersionFiles | None:
    for version in unstored(endpoint):
        files = VersionFiles(version.version, version.sha256)
        if held.get(files.version) == files.sha256 or _source(endpoint, nodes, files):
            return files
    return None


def from_store(
    endpoint: Endpoint, nodes: Mapping[str, ServingNode], needed: Iterable[VersionFiles], held: Mapping[int, str]
) -> tuple[Version, ...]:
    """Those of the needed versions whose files no node has that is heard: the artefact store gives them back."""
    wanted = {
        files.version
        for files in needed
        if held.get(files.version) != files.sha256 and not files.delivery_id and not _source(endpoint, nodes, files)
    }
    return tuple(each for each in endpoint.versions if each.version in wanted and each.stored is not None)


def wanted(
    endpoint: Endpoint,
    nodes: Mapping[str, ServingNode],
    coming: Sequence[Upcoming] = (),
    held: Mapping[int, str] | None = None,
    *,
    has_store: bool = False,
    offered: Mapping[int, str] | None = None,
) -> Mapping[str, tuple[WantedModel, ...]]:
    """What each node shall do with the versions of an endpoint, by node.

    Args:
        endpoint: The endpoint.
        nodes: All nodes.
        coming: Versions that are about to be delivered.
        held: SHA-256 of the versions whose files the broker holds, by number.
        has_store: Whether there is an artefact store.
        offered: The same as ``held``, with those that it is being sent and passes on.
    """
    known = versions.wanted_models(endpoint)
    coming = [each for each in coming if each.members]
    held = held or {}
    needed = needed_files(endpoint, nodes, coming, held, has_store=has_store)
    offered = held if offered is None else offered
    sends = _sends(endpoint, nodes, coming, held, needed)
    if variant_files.has_variants(endpoint):
        return variant_files.wanted(endpoint, nodes, held, sends)
    if not spreads(endpoint, nodes) and not needed:
        return known
    live = endpoint.live_of("")
    receivers = {*endpoint.replica_nodes, *({endpoint.node_id} if lacks_live(endpoint, nodes) else ())}
    names = {*known, *endpoint.replica_nodes, *sends, *(name for each in coming for name in each.members)}
    found: dict[str, tuple[WantedModel, ...]] = {}
    for name in sorted(names):
        before = next((model for model in known.get(name, ()) if not model.variant), None)
        kept = set(before.kept) if before is not None else set()
        arriving = [
            each.files for each in coming if name in each.members and _can_have(nodes, name, each.files, offered)
        ]
        kept |= {each.files.version for each in coming if name in {each.node_id, *each.members}}
        copies = tuple(arriving)
        version, paced = 0, False
        if live is not None:
            paced = any(each.online and each.answering == live.version for each in nodes.values())
            version = _answers(endpoint, live, nodes, name)
            kept |= {version} - {0}
            if name in {endpoint.node_id, *endpoint.replica_nodes}:
                kept |= {each.version for each in versions.kept(endpoint)}
            of_live = VersionFiles(live.version, live.sha256)
            if name in receivers and _can_have(nodes, name, of_live, held):
                copies = (of_live, *copies)
        model = WantedModel(endpoint.name, "", version, tuple(sorted(kept)), copies, sends.get(name, ()), paced)
        found[name] = (model, *(model for model in known.get(name, ()) if model.variant))
    return found


def _can_have(nodes: Mapping[str, ServingNode], name: str, files: VersionFiles, held: Mapping[int, str]) -> bool:
    """Whether a node has the files of a version, or finds them at the broker."""
    return held.get(files.version) == files.sha256 or (name in nodes and nodes[name].has(files.version, files.sha256))


def _answers(endpoint: Endpoint, live: Version, nodes: Mapping[str, ServingNode], name: str) -> int:
    """The version that shall answer on a node; 0 for none."""
    node = nodes.get(name, ServingNode(name, online=False, lost=True))
    answering = {each.id for each in nodes.values() if each.online and each.answering == live.version}
    places = (endpoint.node_id, *endpoint.replica_nodes)
    others = [nodes[each] for each in places if each in nodes and each != name]
    members = [each for each in others if each.online and not each.leaving]
    replaced = bool(members) and all(each.id in answering for each in members)
    if name == endpoint.node_id:
        return 0 if node.leaving and replaced else live.version
    if name not in endpoint.replica_nodes:
        is_needed = answering == {name} or (name in answering and node.leaving and not replaced)
        return live.version if is_needed else 0
    if node.has(live.version, live.sha256):
        return live.version
    return 0 if answering else node.answering


def _sends(
    endpoint: Endpoint,
    nodes: Mapping[str, ServingNode],
    coming: Iterable[Upcoming],
    held: Mapping[int, str],
    needed: Iterable[VersionFiles],
) -> dict[str, tuple[VersionFiles, ...]]:
    """Who shall send what to the broker: of each version that it lacks one node that has it."""
    sources = {each.files.version: each.node_id for each in coming}
    found: dict[str, tuple[VersionFiles, ...]] = {}
    for files in needed:
        if held.get(files.version) == files.sha256:
            continue
        source = sources.get(files.version) or _source(endpoint, nodes, files)
        if source:
            found[source] = (*found.get(source, ()), files)
    return found


def _source(endpoint: Endpoint, nodes: Mapping[str, ServingNode], files: VersionFiles) -> str:
    first = [endpoint.node_id, *endpoint.replica_nodes]
    having = [node.id for node in nodes.values() if node.online and node.copies.get(files.version) == files.sha256]
    home, live = nodes.get(endpoint.node_id), endpoint.live_of("")
    is_live = live is not None and live.version == files.version
    if is_live and home is not None and home.online and not lacks_live(endpoint, nodes):
        return home.id
    return min(having, key=lambda name: (first.index(name) if name in first else len(first), name), default="")


def without_files(coming: Upcoming, nodes: Mapping[str, ServingNode]) -> tuple[str, ...]:
    """The nodes whose copies of a coming version are waited for: it answers nowhere until they have them.

    One that is not heard is, too, for as long as its lease: all of them are where the broker has just begun.
    """
    files = coming.files
    return tuple(
        name
        for name in coming.members
        if name in nodes
        and not nodes[name].lost
        and files.version not in nodes[name].failed
        and not nodes[name].has(files.version, files.sha256)
    )


def not_flipped(endpoint: Endpoint, nodes: Mapping[str, ServingNode]) -> tuple[str, ...]:
    """The nodes that are waited for before it is said that the live version answers.

    These are the ones that can answer with it and do not yet, and those that answer with an earlier one still.
    """
    live = endpoint.live_of("")
    if live is None or not endpoint.replica_nodes:
        return ()
    told = {
        *endpoint.replica_nodes,
        *(name for name, _ in endpoint.left),
        *(n for n, _ in versions.places_of(endpoint)),
    }
    waited = []
    for name in sorted(told - {endpoint.node_id}):
        node = nodes.get(name)
        if node is None or not node.online or node.answering == live.version:
            continue
        is_member = name in endpoint.replica_nodes
        if node.answering or (is_member and node.has(live.version, live.sha256)):
            waited.append(name)
    return tuple(waited)
