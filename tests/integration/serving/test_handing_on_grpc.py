"""gRPC at any node's server: calls are handed on as they are, and end as they would end there."""

from __future__ import annotations

import contextlib
import queue
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import grpc
import numpy as np
import pytest

from testing import onnx_models
from testing.fault_proxy import Fault, FaultProxy, fault_proxy
from testing.needs import need
from testing.routes import clear, lead
from testing.serving_process import ServingProcess, serving, wait_for
from testing.trace_collector import TraceCollector, trace_collector
from tiercel.inference import open_inference_grpc_pb2 as pb
from tiercel.inference import open_inference_grpc_pb2_grpc as pb_grpc

STATUS = grpc.StatusCode
HAS_EXPORTER = bool(entry_points(group="opentelemetry_traces_exporter", name="otlp_proto_grpc"))


@dataclass(frozen=True)
class Nodes:
    """A server without models, one with a model, and what is between them."""

    near: pb_grpc.GRPCInferenceServiceStub
    far: pb_grpc.GRPCInferenceServiceStub
    proxy: FaultProxy
    server: ServingProcess
    traces: TraceCollector


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    folders: dict[str, Path] = {name: tmp_path_factory.mktemp(name) for name in ("near", "far")}
    for folder in folders.values():
        (folder / "models").mkdir()
    onnx_models.put(folders["far"] / "models", "m", 1, onnx_models.plus(1))
    near, far = folders["near"], folders["far"]
    settings = {"routes_file": near / "routes.json", "request_timeout": 60}
    with trace_collector() as traces, pytest.MonkeyPatch.context() as patch:
        for name, value in traces.environment.items():
            patch.setenv(name, value)
        with running(near, far, settings, traces) as both:
            yield both


@contextlib.contextmanager
def running(near: Path, far: Path, settings: dict[str, object], traces: TraceCollector) -> Iterator[Nodes]:
    with (
        serving(far / "models", far, {"routes_file": far / "routes.json"}) as other,
        fault_proxy(other.http) as proxy,
        serving(near / "models", near, settings) as one,
        grpc.insecure_channel(one.grpc) as here,
        grpc.insecure_channel(other.grpc) as there,
    ):
        backends = {name: (clear("far", proxy.address),) for name in ("m", "gone")}
        lead(one, near / "routes.json", "near", backends)
        lead(other, far / "routes.json", "far", {"gone": (clear("near", one.http),)})
        stub = pb_grpc.GRPCInferenceServiceStub
        yield Nodes(stub(here), stub(there), proxy, one, traces)


@pytest.fixture(autouse=True)
def no_fault(nodes: Nodes) -> None:
    nodes.proxy.fault = Fault.NONE


def request(model: str = "m", *, is_raw: bool = True, rows: int = 1, request_id: str = "") -> pb.ModelInferRequest:
    made = pb.ModelInferRequest(model_name=model, id=request_id)
    tensor = made.inputs.add(name="x", datatype="FP32", shape=[rows, 4])
    if is_raw:
        made.raw_input_contents.append(np.arange(rows * 4, dtype=np.float32).tobytes())
    else:
        tensor.contents.fp32_contents.extend(range(rows * 4))
    return made


def by_rest(nodes: Nodes, traceparent: str) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
    headers = {"traceparent": traceparent}
    assert nodes.server.request("POST", "/v2/models/m/infer", {"inputs": [tensor]}, headers).status == 200


def by_grpc(nodes: Nodes, traceparent: str) -> None:
    nodes.near.ModelInfer(request(), timeout=30, metadata=(("traceparent", traceparent),))


@pytest.mark.parametrize("ask", [by_rest, by_grpc])
def test_a_request_is_one_trace_on_all_nodes(nodes: Nodes, ask: Callable[[Nodes, str], None]) -> None:
    need(HAS_EXPORTER, "OpenTelemetry's exporter, of the extra otel")
    trace_id, parent_id = secrets.token_hex(16), secrets.token_hex(8)
    ask(nodes, f"00-{trace_id}-{parent_id}-01")
    spans = wait_for(lambda: found if len(found := nodes.traces.of(trace_id)) == 2 else None, "both spans")
    near, far = sorted(spans, key=lambda span: span.parent_id != parent_id)
    assert (near.parent_id, far.parent_id) == (parent_id, near.span_id)
    assert [span.attributes for span in (near, far)] == [
        {"tiercel.model": "m", "tiercel.node": name} for name in ("near", "far")
    ]
    assert {(span.service, span.name, span.error) for span in spans} == {("tiercel-serving", "infer", "")}


@pytest.mark.parametrize("is_raw", [True, False])
@pytest.mark.parametrize("request_id", ["", "17"])
def test_a_call_is_answered_as_it_would_be_there(nodes: Nodes, is_raw: bool, request_id: str) -> None:
    asked = request(is_raw=is_raw, request_id=request_id)
    for _ in range(3):
        assert nodes.near.ModelInfer(asked, timeout=90) == nodes.far.ModelInfer(asked, timeout=30)
    ready = pb.ModelReadyRequest(name="m")
    assert nodes.near.ModelReady(ready, timeout=90).ready
    assert not nodes.near.ModelReady(pb.ModelReadyRequest(name="nobody"), timeout=90).ready
    about = pb.ModelMetadataRequest(name="m")
    assert nodes.near.ModelMetadata(about, timeout=90) == nodes.far.ModelMetadata(about, timeout=30)


def test_requests_of_a_stream_are_answered_as_they_would_be_there(nodes: Nodes) -> None:
    asked = [
        request(request_id="typed", is_raw=False),
        request(request_id="raw"),
        pb.ModelInferRequest(model_name="m", id="empty"),
        pb.ModelInferRequest(model_name="m", id="version", model_version="7"),
        request("nobody", request_id="nobody"),
        request("gone", request_id="gone"),
        request(request_id="large", rows=20_000),
    ]
    ends = [
        {each.infer_response.id: each for each in stub.ModelStreamInfer(iter(asked), timeout=90)}
        for stub in (nodes.near, nodes.far)
    ]
    assert "does not have the model any more" in ends[0].pop("gone").error_message
    assert ends[1].pop("gone").error_message
    assert ends[0] == ends[1]
    assert set(ends[0]) == {"typed", "raw", "empty", "version", "nobody", "large"}
    assert {name for name, each in ends[0].items() if not each.error_message} == {"typed", "raw", "large"}


def test_a_peer_that_breaks_costs_a_stream_its_request_alone_and_a_silent_one_no_more_than_its_time(
    nodes: Nodes,
) -> None:
    asked: queue.SimpleQueue[pb.ModelInferRequest | None] = queue.SimpleQueue()
    answers = nodes.near.ModelStreamInfer(iter(asked.get, None), timeout=90)
    for fault, is_answered in ((Fault.NONE, True), (Fault.RESET, False), (Fault.GARBAGE, False), (Fault.NONE, True)):
        nodes.proxy.fault = fault
        asked.put(request(request_id=fault.name))
        answer = next(answers)
        assert (answer.infer_response.id, not answer.error_message) == (fault.name, is_answered)
    asked.put(None)
    assert list(answers) == []
    nodes.proxy.fault = Fault.STALL
    before = handed_on(nodes.server, "late")
    began = time.monotonic()
    with pytest.raises(grpc.RpcError) as error:
        list(nodes.near.ModelStreamInfer(iter([request()]), timeout=1))
    assert error.value.code() is STATUS.DEADLINE_EXCEEDED
    assert time.monotonic() - began < 30.0
    wait_for(lambda: handed_on(nodes.server, "late") + given_up(nodes) > before, "the request to be given up", 90)


@pytest.mark.parametrize(
    "wrong",
    [
        pb.ModelInferRequest(model_name="m"),
        pb.ModelInferRequest(model_name="m", model_version="7"),
        pb.ModelInferRequest(model_name="nobody"),
    ],
)
def test_an_error_is_that_of_the_node_to_the_word(nodes: Nodes, wrong: pb.ModelInferRequest) -> None:
    ends = []
    for stub in (nodes.near, nodes.far):
        with pytest.raises(grpc.RpcError) as error:
            stub.ModelInfer(wrong, timeout=90)
        ends.append((error.value.code(), error.value.details()))
    assert ends[0] == ends[1]


def test_a_second_hop_ends_with_a_clear_error(nodes: Nodes) -> None:
    with pytest.raises(grpc.RpcError) as error:
        nodes.near.ModelInfer(request("gone"), timeout=90)
    assert error.value.code() is STATUS.UNAVAILABLE
    assert "does not have the model any more" in str(error.value.details())
    direct = nodes.server.request(
        "POST", "/v2/between/ModelInfer", request().SerializeToString(), {"tiercel-hops": "1"}
    )
    assert (direct.status, direct.headers["tiercel-not-here"]) == (404, "1")
    for path, headers in (("ModelInfer", {}), ("RepositoryModelUnload", {"tiercel-hops": "1"})):
        assert nodes.server.request("POST", f"/v2/between/{path}", b"", headers).status == 404


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (Fault.STALL, STATUS.DEADLINE_EXCEEDED),
        (Fault.RESET, STATUS.UNAVAILABLE),
        (Fault.RESET_ANSWER, STATUS.UNAVAILABLE),
        (Fault.GARBAGE, STATUS.UNAVAILABLE),
    ],
)
def test_a_broken_peer_ends_the_call_within_its_time(nodes: Nodes, fault: Fault, status: STATUS) -> None:
    assert nodes.near.ModelInfer(request(), timeout=90).model_name == "m"
    nodes.proxy.fault = fault
    began = time.monotonic()
    with pytest.raises(grpc.RpcError) as error:
        nodes.near.ModelInfer(request(), timeout=1)
    assert error.value.code() is status
    assert time.monotonic() - began < 30.0
    nodes.proxy.fault = Fault.NONE
    assert nodes.near.ModelInfer(request(rows=1000), timeout=90).model_name == "m"


def test_a_call_that_is_cancelled_is_given_up_there_too(nodes: Nodes) -> None:
    before = given_up(nodes)
    nodes.proxy.fault = Fault.STALL
    call = nodes.near.ModelInfer.future(request(), timeout=90)
    time.sleep(0.2)  # it is under way there, which nobody tells
    call.cancel()
    # The server's own limit would come later.
    wait_for(lambda: given_up(nodes) == before + 1, "the call to be given up", 30.0)
    stream = nodes.near.ModelStreamInfer(iter([request(), request()]), timeout=90)
    time.sleep(0.2)  # it is under way there, which nobody tells
    stream.cancel()
    wait_for(lambda: given_up(nodes) == before + 3, "the stream's requests to be given up", 30.0)


def given_up(nodes: Nodes) -> int:
    return handed_on(nodes.server, "given_up")


def test_what_would_wait_long_here_is_answered_by_a_copy_elsewhere_and_here_if_that_is_gone(tmp_path: Path) -> None:
    """Each of the two has the model, and one thread."""
    asked = pb.ModelInferRequest(model_name="loop")
    asked.inputs.add(name="k", datatype="INT64").contents.int64_contents.append(5_000)
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        onnx_models.put(folder / "models", "loop", 1, onnx_models.counting_loop())
    settings = {"routes_file": one / "routes.json", "inference_threads": 1}
    with (
        serving(one / "models", one, settings) as near,
        grpc.insecure_channel(near.grpc) as channel,
        contextlib.ExitStack() as stack,
    ):
        far = stack.enter_context(serving(other / "models", other, {"inference_threads": 1}))
        stub = pb_grpc.GRPCInferenceServiceStub(channel)

        def ask_all(version: str = "") -> None:
            asked.model_version = version
            calls = [stub.ModelInfer.future(asked, timeout=60) for _ in range(24)]
            assert {call.result().model_name for call in calls} == {"loop"}

        def answered_elsewhere() -> int:
            return handed_on(near, "answered")

        ask_all()
        assert answered_elsewhere() == 0, "nobody else is known to have it"
        lead(near, one / "routes.json", "one", {"loop": (clear("other", far.http),)})
        ask_all(version="1")
        assert answered_elsewhere() == 0, "who names a version means this node's"
        ask_all()
        assert 0 < answered_elsewhere() < 24
        stack.close()
        ask_all()


def handed_on(server: ServingProcess, outcome: str) -> int:
    lines = server.request("GET", "/metrics").body.decode().splitlines()
    (line,) = [line for line in lines if line.startswith(f'tiercel_handed_on_total{{outcome="{outcome}"}}')]
    return int(float(line.rpartition(" ")[2]))
