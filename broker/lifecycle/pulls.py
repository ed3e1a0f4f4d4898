"""Versions whose files a tenant asks for: who has them, and who is to send them to the broker. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.versions import VersionFiles, WantedModel, kept

if TYPE_CHECKING:
    from tiercel.broker.lifecycle.serving_node import ServingNode
    from tiercel.core.endpoints import Endpoint, Version


def holders(endpoint: Endpoint, version: Version, nodes: Mapping[str, ServingNode]) -> tuple[str, ...]:
    """The nodes that have the files of a version that is kept, the one that it was delivered on first.

    Args:
        endpoint: The endpoint.
        version: One of its versions.
        nodes: What nodes are to the endpoint, by name.
    """
    home = endpoint.node_of(version)
    copies = {name for name, node in nodes.items() if node.copies.get(version.version) == version.sha256}
    return (*((home,) if home else ()), *sorted(copies - {home}))


def pulled_files(endpoint: Endpoint, pulled: Collection[int]) -> tuple[VersionFiles, ...]:
    """What the broker shall hold of versions that a tenant asks for, as far as they are kept."""
    return tuple(VersionFiles(each.version, each.sha256) for each in kept(endpoint) if each.version in pulled)


def with_pulls(
    wanted: Mapping[str, tuple[WantedModel, ...]],
    endpoint: Endpoint,
    nodes: Mapping[str, ServingNode],
    pulled: Collection[int],
    held: Mapping[int, str],
) -> Mapping[str, tuple[WantedModel, ...]]:
    """What is wanted of nodes, and beside it the files of versions that a tenant asks for.

    Args:
        wanted: What is wanted of each node anyway.
        endpoint: The endpoint.
        nodes: What nodes are to it, by name.
        pulled: Numbers of the versions.
        held: SHA-256 of the versions whose files the broker has already, by number.
    """
    found = dict(wanted)
    for version in kept(endpoint):
        if version.version not in pulled or held.get(version.version) == version.sha256:
            continue
        having = [name for name in holders(endpoint, version, nodes) if name in nodes and nodes[name].online]
        files = VersionFiles(version.version, version.sha256)
        if having:
            found[having[0]] = tuple(_sending(each, version, files) for each in found.get(having[0], ()))
    return found


def _sending(model: WantedModel, version: Version, files: VersionFiles) -> WantedModel:
    if model.variant != version.variant or files in model.sends:
        return model
    return replace(model, sends=(*model.sends, files))
