"""What nodes with copies are told of a file that somebody deploys."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from testing import onnx_models
from tiercel.broker.api.deploying import deploy
from tiercel.broker.api.incoming import Incoming
from tiercel.broker.lifecycle.deployment import Arrived
from tiercel.broker.lifecycle.serving_node import ServingNode
from tiercel.broker.store.version_files import VersionStore
from tiercel.core.cheap_variants import CheapVariant, VariantKind
from tiercel.core.checkpoints import Artefact
from tiercel.core.deploying import Deploy
from tiercel.core.wire import to_proto
from tiercel.v1 import models_pb2

MODEL, CHEAP = onnx_models.plus(1.0), b"a cheap variant"


def artefact(content: bytes) -> Artefact:
    return Artefact(hashlib.sha256(content).hexdigest(), len(content))


class FakeEndpoints:
    """Makes a version of whatever comes, at once."""

    async def deployed(self, tenant: str, asked: Deploy) -> None:
        """None of it is there."""

    def check_deploy(self, tenant: str, endpoint: str) -> None:
        """There is no such endpoint yet."""

    def replicas(self, endpoint: str) -> dict[str, ServingNode]:
        return {"n1": ServingNode("n1", online=True)}

    async def deploy(
        self,
        tenant: str,
        arrived: Arrived,
        put: Callable[[str, int], Awaitable[None]],
        held: contextlib.ExitStack,
    ) -> SimpleNamespace:
        with held:
            await put(arrived.deploy.endpoint, 1)
        return SimpleNamespace(version=1)


async def test_copies_are_told_how_accurate_the_cheap_variants_are_that_are_worth_it(tmp_path: Path) -> None:
    """They answer with none of which they do not know that."""
    what = artefact(CHEAP)
    good = CheapVariant(
        made="static", value=0.895, seconds=1e-5, fp32_seconds=3e-5, size_bytes=what.size_bytes, sha256=what.sha256
    )
    slow_on_a_cpu = replace(good, kind=VariantKind.FP16, value=0.9, seconds=4e-5)
    asked = Deploy("plus", "plus.onnx", artefact(MODEL), "accuracy", 0.9, cheap_variants=(good, slow_on_a_cpu))
    header = models_pb2.DeployModelRequest(header=to_proto(asked, models_pb2.DeployHeader))
    parts = [models_pb2.DeployModelRequest(data=content) for content in (MODEL, CHEAP, CHEAP)]
    messages = iter([header, *parts])

    async def read() -> object:
        return next(messages, None)

    store = VersionStore(tmp_path)
    incoming = Incoming(read, models_pb2.DeployModelRequest, "send it again")
    await deploy("alice", "alice", incoming, cast("Any", FakeEndpoints()), store)
    file, found = await store.wait_file("plus", 1, asked.model.sha256, "accuracy.json")
    with file:
        told = json.loads(file.read(found.size_bytes))
    assert told == {"accuracy": 0.9, "int8": 0.895, "fp16": 0.9}, "whether fp16 is faster where they are, they find out"
