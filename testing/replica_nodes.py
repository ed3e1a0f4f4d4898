"""Nodes that do at once what the broker wants of their models, unless a test says otherwise."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from testing.actors import Actors, make_node, wanted_of
from tiercel.broker.actors.node import NodeActor
from tiercel.broker.actors.node_messages import NodeReported, ServedStatus, ServingReported
from tiercel.broker.store.carried import CheckpointFile
from tiercel.broker.store.version_files import VersionStore
from tiercel.core.endpoints import Endpoint

ENDPOINT = "digits"


@dataclass
class ReplicaNode:
    """One node: what it has, and what answers there."""

    actor: NodeActor
    epoch: int
    answering: int = 0
    variants: dict[str, int] = field(default_factory=dict)  # what answers of each variant
    copies: dict[int, str] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    refuses: set[int] = field(default_factory=set)
    is_stuck: bool = False
    history: list[int] = field(default_factory=list)


class ReplicaNodes:
    """Several of them, of one broker."""

    def __init__(self, actors: Actors) -> None:
        self.actors = actors
        self.versions = actors.registry.versions
        self.nodes: dict[str, ReplicaNode] = {}

    async def connect(self, *names: str) -> None:
        """Agents open their streams and say what they have."""
        for name in names:
            before = self.nodes.get(name)
            actor, epoch = await self.actors.connect(make_node(name))
            self.nodes[name] = ReplicaNode(actor, epoch) if before is None else before
            self.nodes[name].actor, self.nodes[name].epoch = actor, epoch
            await self.say(name)

    async def say(self, name: str) -> None:
        """A node says what it has."""
        node = self.nodes[name]
        answering = {"": node.answering, **node.variants}
        served = {(ENDPOINT, variant): ServedStatus(version) for variant, version in answering.items() if version}
        copies = {(ENDPOINT, version): sha256 for version, sha256 in node.copies.items()}
        failed = {(ENDPOINT, version): reason for version, reason in node.failed.items()}
        said = ServingReported(f"{name}:1", f"{name}:2", served, copies=copies, failed=failed)
        await node.actor.send(NodeReported(node.epoch, serving=said))
        await self.actors.settle()

    async def obey(self, *names: str, rounds: int = 6) -> None:
        """Nodes do what is wanted of them, those that are stuck aside, until nothing changes."""
        for _ in range(rounds):
            for name in names or tuple(self.nodes):
                node = self.nodes[name]
                if node.actor.node.online and not node.is_stuck:
                    await self._obey_once(name, node)

    async def _obey_once(self, name: str, node: ReplicaNode) -> None:
        models = (await wanted_of(node.actor, node.epoch)).models
        kept = {version for model in models for version in model.kept}
        for model in models:
            for files in model.sends:
                if not files.delivery_id and files.version not in node.copies:
                    continue
                self.put(files.version, files.sha256)
                self.actors.agents.look_after_replicas()
            for files in model.copies:
                if files.version in node.refuses:
                    node.failed[files.version] = "its disk is full"
                else:
                    node.copies[files.version] = files.sha256
            node.copies = {version: sha256 for version, sha256 in node.copies.items() if version in kept}
            if model.variant:
                if not model.version or model.version in node.copies:
                    node.variants[model.variant] = model.version
            elif node.answering != model.version and (not model.version or model.version in node.copies):
                node.answering = model.version
                node.history.append(model.version)
        await self.say(name)

    def put(self, version: int, sha256: str) -> None:
        """A node has sent the files of a version."""
        path = self.versions._folder / f"{ENDPOINT}@{version}"
        file = CheckpointFile("model.onnx", 0, sha256)
        with self.versions.begin(ENDPOINT, version, [CheckpointFile("model.onnx", 0, EMPTY)]) as writer:
            writer.finish()
        path.write_bytes(path.read_bytes().replace(EMPTY.encode(), file.sha256.encode()))
        self.versions.finished(ENDPOINT, version)

    def answering(self) -> dict[str, int]:
        """The version that answers, by node."""
        return {name: node.answering for name, node in self.nodes.items()}


EMPTY = hashlib.sha256(b"").hexdigest()


def version_store(folder: Path) -> VersionStore:
    """What a broker holds, in a folder of a test's."""
    return VersionStore(folder / "versions")


def endpoint(actors: Actors) -> Endpoint:
    """The one that alice has."""
    (found,) = actors.service.endpoints.of("alice")
    return found
