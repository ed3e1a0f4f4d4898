"""Whatever nodes do and whatever is delivered or chosen: somebody answers, and in the end all who shall."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tiercel.broker.lifecycle import replicas, versions
from tiercel.broker.lifecycle.serving_node import ServingNode
from tiercel.core.endpoints import Endpoint, Version
from tiercel.core.jobs import Direction

NAMES = ("n1", "n2", "n3", "n4")


@dataclass
class World:
    """Nodes that carry out what is wanted when they get round to it, and an endpoint."""

    endpoint: Endpoint
    nodes: dict[str, ServingNode] = field(default_factory=lambda: {name: ServingNode(name) for name in NAMES})
    held: dict[int, str] = field(default_factory=dict)

    def answering(self) -> set[str]:
        """Who answers with what is live, or at least as one of those who shall."""
        live, members = self.endpoint.live_version, {self.endpoint.node_id, *self.endpoint.replica_nodes}
        online = [node for node in self.nodes.values() if node.online and node.answering]
        return {node.id for node in online if node.answering == live or node.id in members}

    def look(self) -> None:
        self.endpoint = replicas.spread(self.endpoint, self.nodes)

    def deliver(self, name: str) -> None:
        """A version was delivered on a node, and answers there."""
        if not self.nodes[name].online:
            return
        number = self.endpoint.next_version
        version = Version(number, "j", 1, "accuracy", number / 100, 0.0, f"sha{number}", Direction.MAX, node_id=name)
        self.endpoint, _ = versions.with_version(self.endpoint, version, may_replace=True)
        self.endpoint = replace(self.endpoint, next_version=number + 1)
        node = self.nodes[name]
        if "" not in self.endpoint.pinned:
            self.nodes[name] = replace(node, answering=number, copies={**node.copies, number: f"sha{number}"})
        else:
            self.nodes[name] = replace(node, copies={**node.copies, number: f"sha{number}"})

    def obey(self, name: str) -> None:
        """A node does what is wanted of it."""
        node = self.nodes[name]
        models = replicas.wanted(self.endpoint, self.nodes, (), self.held).get(name, ())
        if not node.online or not models:
            return
        (model,) = models
        for files in model.sends:
            if node.copies.get(files.version) == files.sha256:
                self.held[files.version] = files.sha256
        copies = dict(node.copies)
        for files in model.copies:
            if self.held.get(files.version) == files.sha256:
                copies[files.version] = files.sha256
        copies = {version: sha256 for version, sha256 in copies.items() if version in model.kept}
        answering = model.version if model.version in copies or not model.version else node.answering
        self.nodes[name] = replace(node, answering=answering, copies=copies)


ACTS = st.tuples(
    st.sampled_from(["deliver", "look", "obey", "away", "lost", "back", "leave", "stay", "choose", "count", "crowd"]),
    st.sampled_from(NAMES),
    st.integers(1, 4),
)


@given(st.lists(ACTS, max_size=40), st.integers(1, 4))
def test_nobody_is_told_to_stop_before_somebody_else_answers(acts: list[tuple[str, str, int]], count: int) -> None:
    world = World(Endpoint("digits", "alice", replicas=count))
    for act, name, number in acts:
        before = world.answering()
        do(world, act, name, number)
        if act == "obey" and before:
            assert world.answering(), f"{act} {name} left nobody who answers"
    settle(world)
    check_settled(world)


@given(st.lists(ACTS, max_size=20), st.integers(1, 4), st.lists(st.integers(0, 9), min_size=4, max_size=4))
def test_nodes_stay_where_only_others_get_busier(
    acts: list[tuple[str, str, int]], count: int, crowds: list[int]
) -> None:
    world = World(Endpoint("digits", "alice", replicas=count))
    for act, name, number in acts:
        do(world, act, name, number)
    world.look()
    members = world.endpoint.replica_nodes
    for name, crowd in zip(NAMES, crowds, strict=True):
        world.nodes[name] = replace(world.nodes[name], crowd=crowd)
    world.look()
    assert world.endpoint.replica_nodes == members


def do(world: World, act: str, name: str, number: int) -> None:
    """Something happens."""
    changes: dict[str, dict[str, Any]] = {
        "away": {"online": False},
        "lost": {"online": False, "lost": True},
        "back": {"online": True, "lost": False},
        "leave": {"leaving": True},
        "stay": {"leaving": False},
        "crowd": {"crowd": number},
    }
    if act in changes:
        world.nodes[name] = replace(world.nodes[name], **changes[act])
    elif act == "deliver":
        world.deliver(name)
    elif act == "look":
        world.look()
    elif act == "obey":
        world.obey(name)
    elif act == "count":
        world.endpoint = replace(world.endpoint, replicas=number)
    elif kept := versions.kept(world.endpoint):
        world.endpoint = versions.promoted(world.endpoint, kept[number % len(kept)].version)


def settle(world: World) -> None:
    """All nodes are back, and do what is wanted for as long as it takes."""
    world.nodes = {name: replace(node, online=True, lost=False, leaving=False) for name, node in world.nodes.items()}
    for _ in range(8):
        world.look()
        for name in NAMES:
            world.obey(name)


def check_settled(world: World) -> None:
    endpoint = world.endpoint
    live = endpoint.live_of("")
    if live is None:
        return
    has_files = any(node.copies.get(live.version) == live.sha256 for node in world.nodes.values())
    if not has_files:  # its only node threw it away, being away for long
        return
    members = {endpoint.node_id, *endpoint.replica_nodes}
    assert len(members) == min(endpoint.replicas, len(NAMES))
    assert {node.id for node in world.nodes.values() if node.answering} == members
    assert {world.nodes[name].answering for name in members} == {live.version}
    assert replicas.not_flipped(endpoint, world.nodes) == ()
