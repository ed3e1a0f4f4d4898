from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from testing import onnx_models
from testing.until import until
from tiercel.core.cheap_variants import CHEAP
from tiercel.core.errors import (
    CapacityExceededError,
    InferenceFailedError,
    InvalidRequestError,
    NotFoundError,
    TiercelError,
    UnavailableError,
)
from tiercel.inference import open_inference_grpc_pb2 as pb
from tiercel.serving.access.callers import NOBODY
from tiercel.serving.accounting.accounts import Account
from tiercel.serving.dataplane import DataPlane
from tiercel.serving.descriptions import Descriptions
from tiercel.serving.dispatch.dispatcher import Dispatcher
from tiercel.serving.dispatch.variants.endpoints import Endpoints
from tiercel.serving.grpc.adapter import InferenceServicer
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.models.registry import Registry
from tiercel.serving.requests import InferRequest, InferResult, InputTensor
from tiercel.serving.runtime.engine import Session
from tiercel.serving.runtime.measure import Batching
from tiercel.serving.runtime.profile import LatencyProfile
from tiercel.serving.runtime.workers import Workers
from tiercel.serving.tensors import BY_NAME

CALL = SimpleNamespace(caller=NOBODY, head=SimpleNamespace(authorization=b""))


class BusyWorkers:
    """Workers that have other things to do."""

    count = 1
    idle = 0
    may_run_ahead = False


class Site:
    """An endpoint with one variant, for whose requests there is no worker; one of them may wait."""

    def __init__(self, root: Path) -> None:
        self.registry = Registry()
        self.registry.ready = True
        self.variant = LoadedVersion("small", 1, Session(onnx_models.plus(1.0)))
        self.registry.record("small").flip(self.variant)
        workers = cast("Workers", BusyWorkers())
        self.dispatcher = Dispatcher(workers, 1, 10**6)
        self.endpoints = Endpoints(root, self.registry, self.dispatcher, 30.0)
        self.answers: list[InferResult | TiercelError] = []
        (root / "e").mkdir()
        (root / "e" / "variants.json").write_text(
            '{"variants": [{"name": "small", "accuracy": 0.5}], "objective_seconds": 20}'
        )

    @property
    def descriptions(self) -> Descriptions:
        return Descriptions(self.registry, 8, 2, self.endpoints)

    def grpc(self, method: str, request: Any) -> Any:
        plane = DataPlane(self.registry, cast("Any", None), 30.0, self.endpoints)
        nobody: Any = None
        servicer = InferenceServicer(plane, nobody, nobody, self.descriptions, nobody, nobody)
        return servicer.handlers()[method](request, cast("Any", CALL))

    @property
    def account(self) -> Account:
        return self.registry.record("e").account

    def ask(self, name: str = "x", version: str = "", **hints: Any) -> Any:
        tensor = InputTensor(name, BY_NAME["FP32"], np.zeros((1, 4), np.float32))
        return self.endpoints.submit(InferRequest("e", version, [tensor], **hints), self.answers.append)


@pytest.fixture
async def site(tmp_path: Path) -> Any:
    site = Site(tmp_path)
    assert await site.endpoints.load("e")
    yield site
    site.endpoints.close()


async def test_a_caller_who_leaves_is_counted_as_such(site: Site) -> None:
    call = site.ask()
    call.cancel()
    call.cancel()
    assert (site.account.requests, site.account.delays.failures) == (1, 1)
    assert site.variant.statistics.failures["CANCELED"] == 1
    assert not site.account.changed_since(time.perf_counter())
    assert site.answers == []


async def test_a_request_that_fails_is_counted_as_failed_and_nothing_else(site: Site, tmp_path: Path) -> None:
    class Failing(Session):
        def run(self, *_: Any, **__: Any) -> Any:
            raise InferenceFailedError("the model failed")

    variant = LoadedVersion("small", 2, Failing(onnx_models.plus(1.0)))
    site.registry.record("small").flip(variant)
    workers = Workers(1)
    endpoints = Endpoints(tmp_path, site.registry, Dispatcher(workers, 1, 10**6), 30.0)
    assert await endpoints.load("e")
    tensor = InputTensor("x", BY_NAME["FP32"], np.zeros((1, 4), np.float32))
    endpoints.submit(InferRequest("e", "", [tensor]), site.answers.append)
    await until(lambda: site.answers)
    endpoints.close()
    workers.close()
    assert isinstance(site.answers.pop(), InferenceFailedError)
    told = variant.statistics.as_json("small", "2")["inference_stats"]
    assert (told["fail"]["count"], told["success"]["count"]) == (1, 0)


async def test_requests_that_make_no_sense_say_nothing_of_how_well_an_endpoint_does(site: Site) -> None:
    assert site.ask("unknown") is None
    assert isinstance(site.answers.pop(), InvalidRequestError)
    assert (site.account.requests, site.account.delays.failures) == (0, 0)


async def test_the_version_that_metadata_names_is_the_one_that_can_be_asked(site: Site) -> None:
    (version,) = site.endpoints.metadata("e")["versions"]
    assert site.endpoints.metadata("e", version) == site.endpoints.metadata("e")
    assert site.ask(version=version) is not None


@pytest.mark.parametrize(("version", "error"), [("2", NotFoundError), ("one", InvalidRequestError)])
async def test_an_endpoint_has_no_other_version(site: Site, version: str, error: type[TiercelError]) -> None:
    assert site.ask(version=version) is None
    assert isinstance(site.answers.pop(), error)
    with pytest.raises(error):
        site.endpoints.metadata("e", version)


async def test_the_statistics_of_an_endpoint_are_those_of_its_variants(site: Site) -> None:
    site.ask().cancel()
    (told,) = site.descriptions.statistics("e")["model_stats"]
    assert (told["name"], told["version"], told["inference_stats"]["fail"]["count"]) == ("small", "1", 1)
    assert site.descriptions.statistics("e", "1") == site.descriptions.statistics("small")
    answer = site.grpc("ModelStatistics", pb.ModelStatisticsRequest(name="e"))
    assert [each.name for each in answer.model_stats] == ["small"]
    with pytest.raises(NotFoundError):
        site.descriptions.statistics("e", "2")


async def test_the_configuration_of_an_endpoint_says_what_all_of_its_variants_are(site: Site) -> None:
    config = site.descriptions.config("e")
    assert (config["name"], config["platform"], config["max_batch_size"]) == ("e", "tiercel_variants", 0)
    assert config["input"] == site.descriptions.config("small")["input"]
    assert site.grpc("ModelConfig", pb.ModelConfigRequest(name="e")).config.platform == "tiercel_variants"
    site.variant.session.batching = Batching(LatencyProfile((1, 2, 4), (0.001, 0.002, 0.004)), "", 4)
    assert site.descriptions.config("e")["max_batch_size"] == 8


async def test_what_grpc_says_of_an_endpoint_is_what_it_has_a_place_for(site: Site) -> None:
    metadata = site.grpc("ModelMetadata", pb.ModelMetadataRequest(name="e"))
    assert (metadata.platform, list(metadata.versions), metadata.inputs[0].name) == ("tiercel_variants", ["1"], "x")


async def test_where_no_variant_is_live_there_is_nothing_to_tell(site: Site) -> None:
    site.registry.record("small").flip(None)
    with pytest.raises(UnavailableError, match="load one of small"):
        site.descriptions.statistics("e")
    with pytest.raises(UnavailableError):
        site.descriptions.config("e")


@pytest.mark.parametrize("priority", [1, 3])
async def test_a_priority_is_refused_since_requests_are_answered_as_they_are_due(site: Site, priority: int) -> None:
    assert site.ask(priority=priority) is None
    (error,) = site.answers
    assert isinstance(error, InvalidRequestError)
    assert f"priority is {priority}" in error.message


@pytest.mark.parametrize("priority", [0, 2])
async def test_the_priority_of_those_who_say_none_may_be_said(site: Site, priority: int) -> None:
    assert site.ask(priority=priority) is not None


async def test_one_for_whom_there_is_no_room_does(site: Site) -> None:
    site.ask()
    assert site.ask() is None
    assert isinstance(site.answers.pop(), CapacityExceededError)
    assert (site.account.requests, site.account.delays.failures) == (2, 1)


async def test_an_endpoint_without_a_live_variant_is_for_other_nodes_to_answer(site: Site) -> None:
    plane = DataPlane(site.registry, cast("Any", None), 30.0, site.endpoints)
    assert plane.has("e")
    site.registry.record("small").flip(None)
    assert not plane.has("e")
    assert site.endpoints.knows("e")


async def test_an_endpoint_that_is_gone_answers_those_who_wait_while_it_has_a_variant(site: Site) -> None:
    call = site.ask()
    unloading = asyncio.create_task(site.endpoints.unload("e"))
    await asyncio.sleep(0)
    assert not site.endpoints.knows("e"), "who comes now is handed on"
    assert site.account.as_json(0.0)["waiting"] == 1
    (taken,) = cast("Any", site.account.endpoint).take(call.begin)  # a worker is free
    assert taken is call
    assert await unloading
    assert site.answers == []
    assert site.account.endpoint == ()


async def test_an_endpoint_that_is_gone_with_its_variants_fails_what_waits(site: Site) -> None:
    site.ask()
    unloading = asyncio.create_task(site.endpoints.unload("e"))
    await asyncio.sleep(0)
    site.registry.record("small").flip(None)
    site.endpoints.tell_of_unloaded()
    assert await unloading
    assert isinstance(site.answers.pop(), UnavailableError)
    assert site.account.as_json(0.0)["waiting"] == 0


async def test_one_that_is_loaded_anew_meanwhile_goes_on_with_those_who_wait(site: Site) -> None:
    site.ask()
    endpoint = site.account.endpoint
    unloading = asyncio.create_task(site.endpoints.unload("e"))
    await asyncio.sleep(0)
    assert await site.endpoints.load("e")
    assert await unloading
    assert site.endpoints.knows("e")
    assert site.account.endpoint is endpoint
    assert site.account.as_json(0.0)["waiting"] == 1
    assert site.answers == []


async def test_nothing_is_kept_of_a_model_with_cheap_variants_once_it_is_unloaded(site: Site) -> None:
    record = site.registry.record("small")
    for kind in CHEAP:
        site.variant.cheap[kind] = LoadedVersion("small", 1, Session(onnx_models.plus(1.0)))
        site.variant.cheap[kind].session.accuracy = 0.5
    tensor = InputTensor("x", BY_NAME["FP32"], np.zeros((1, 4), np.float32))
    site.endpoints.submit_to_model(InferRequest("small", "", [tensor]), site.answers.append)
    assert record.account.endpoint
    record.flip(None)
    site.endpoints.tell_of_unloaded()
    assert record.account.endpoint == ()
    assert isinstance(site.answers.pop(), TiercelError)
