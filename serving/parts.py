"""What the inference server is made of: the models with what runs them, and the doors through which they are asked."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tiercel.core.traces import Tracing
from tiercel.serving.access.gate import Gate
from tiercel.serving.canary_plan import CanaryPlan
from tiercel.serving.dataplane import DataPlane
from tiercel.serving.descriptions import Descriptions
from tiercel.serving.dispatch.dispatcher import Dispatcher
from tiercel.serving.dispatch.variants.endpoints import Endpoints
from tiercel.serving.explaining.feedback import Feedback
from tiercel.serving.explaining.recent_requests import RecentRequests
from tiercel.serving.generation.generation import Generation
from tiercel.serving.generation.request import GenerationLimits
from tiercel.serving.grpc.adapter import GrpcServer, InferenceServicer, grpc_limits
from tiercel.serving.grpc.generation import GrpcGeneration
from tiercel.serving.grpc.handing import GrpcHanding
from tiercel.serving.loading.lifecycle import Lifecycle
from tiercel.serving.loading.loader import BuildOptions, Loader
from tiercel.serving.loading.stages import clean_up
from tiercel.serving.loading.uploads import Uploads
from tiercel.serving.loading.watching import Watching, told
from tiercel.serving.models.registry import Registry
from tiercel.serving.operators import read_operators
from tiercel.serving.rest.compression import Inflater
from tiercel.serving.rest.extensions import add_descriptions, add_explaining, add_metrics
from tiercel.serving.rest.feedback import FeedbackDoor
from tiercel.serving.rest.generation import add_generation
from tiercel.serving.rest.handed_calls import add_handed_calls
from tiercel.serving.rest.handing import RestHanding
from tiercel.serving.rest.hosts import Hosts
from tiercel.serving.rest.messages import ByteBudget
from tiercel.serving.rest.metrics import Metrics
from tiercel.serving.rest.receiver import HttpLimits
from tiercel.serving.rest.routes import Routes
from tiercel.serving.rest.server import HttpServer
from tiercel.serving.routing.directory import Directory
from tiercel.serving.routing.pool import Credentials, PeerLimits
from tiercel.serving.routing.relay import Relay
from tiercel.serving.runtime.placement import MemoryOptions, Placement, placement
from tiercel.serving.runtime.providers import CudaOptions, read_order
from tiercel.serving.runtime.running import RunningMarks
from tiercel.serving.settings import Settings
from tiercel.serving.verification.verifier import Verifier

if TYPE_CHECKING:
    from tiercel.serving.tasks import StartTask


@dataclass(frozen=True, slots=True)
class Models:
    """The models, and what loads and runs them."""

    registry: Registry  # which there are
    marks: RunningMarks  # what runs now, for whoever looks after a crash
    loader: Loader  # loads versions
    endpoints: Endpoints  # names that stand for several variants
    lifecycle: Lifecycle  # which version answers
    recent: RecentRequests  # what became of requests with an id
    feedback: Feedback  # how often answers were right
    plane: DataPlane  # answers requests
    generation: Generation  # and those that are answered token by token


@dataclass(frozen=True, slots=True)
class Doors:
    """Where models are asked, and other nodes on behalf of who asks."""

    http: HttpServer  # over REST
    grpc: GrpcServer  # over gRPC
    routes: Routes  # those of REST
    gate: Gate  # who may ask
    directory: Directory  # which other nodes answer for what
    relay: Relay  # asks them


def make_models(settings: Settings, verifier: Verifier, dispatcher: Dispatcher, start_task: StartTask) -> Models:
    """Make what answers, without a model yet."""
    registry, marks = Registry(), RunningMarks(settings.state_file)
    loader = Loader(verifier, _build_options(settings), _placement(settings), marks)
    endpoints = Endpoints(settings.repository, registry, dispatcher, settings.request_timeout)
    canary = CanaryPlan(settings.canary_fraction, settings.canary_seconds)
    watching = Watching(settings.repository, loader, start_task, settings.input_sample_seconds)
    recent = RecentRequests(settings.remembered_requests)
    feedback = Feedback(recent)
    lifecycle = Lifecycle(
        settings.repository,
        registry,
        loader,
        start_task,
        endpoints=endpoints,
        canary=canary,
        watching=watching,
        forget=feedback.forget,
    )
    plane = DataPlane(registry, dispatcher, settings.request_timeout, endpoints, recent)
    generation = Generation(registry, dispatcher, endpoints, _generation_limits(settings), recent)
    return Models(registry, marks, loader, endpoints, lifecycle, recent, feedback, plane, generation)


def make_doors(settings: Settings, models: Models, start_task: StartTask, tracing: Tracing | None = None) -> Doors:
    """Make the doors, which nobody listens at yet, and clean up what an earlier server left half uploaded."""
    plane, lifecycle = models.plane, models.lifecycle
    budget = ByteBudget(settings.max_buffered_bytes)
    inflater = Inflater(settings.max_body_bytes, budget)
    operators = read_operators(settings.operator_token_file)
    gate = Gate(operators, settings.access_file)
    uploads = Uploads(
        settings.repository, lifecycle, models.loader, operators, settings.max_model_bytes, settings.max_reference_bytes
    )
    clean_up(settings.repository)
    hosts = Hosts((settings.host, settings.tls_host, *settings.host_names))
    directory = Directory(settings.routes_file)
    relay = _relay(settings, directory)
    handing = RestHanding(relay, plane, settings.request_timeout)
    routes = Routes(
        plane,
        lifecycle,
        start_task,
        settings.max_json_bytes,
        uploads,
        operators,
        inflater,
        hosts,
        gate,
        handing,
        tracing,
    )
    http = HttpServer(routes, _http_limits(settings), budget)
    descriptions = Descriptions(models.registry, settings.max_batch_rows, settings.workers, models.endpoints)
    feedback = models.feedback
    metrics = _metrics(models, http, gate, relay)
    metrics.add_feedback(feedback.accuracies)
    metrics.add_inputs(partial(told, models.registry, models.endpoints))
    add_metrics(routes, metrics)
    add_descriptions(routes, descriptions)
    add_explaining(routes, models.recent, handing)
    FeedbackDoor(feedback, handing, plane, gate, settings.max_json_bytes, settings.request_timeout).add_to(routes)
    add_generation(routes, models.generation, handing, start_task, tracing)
    routes.tell_in_usage("feedback", lambda _: feedback.accuracies())
    routes.tell_in_usage("inputs", partial(told, models.registry, models.endpoints))
    grpc_handing = GrpcHanding(relay, plane, start_task, settings.request_timeout)
    generation = GrpcGeneration(models.generation)
    servicer = InferenceServicer(
        plane, lifecycle, start_task, descriptions, uploads, operators, gate, grpc_handing, tracing, generation
    )
    grpc = GrpcServer(servicer, grpc_limits(settings), budget)
    add_handed_calls(routes, handing, grpc.handed_calls.answer)
    return Doors(http, grpc, routes, gate, directory, relay)


def _metrics(models: Models, http: HttpServer, gate: Gate, relay: Relay) -> Metrics:
    metrics = Metrics(models.registry)
    _add_gauges(metrics, http, models.plane)
    metrics.add_refusals(gate.refusals)
    metrics.add_handed_on(relay.outcomes)
    metrics.add_generation(models.generation)
    return metrics


def _generation_limits(settings: Settings) -> GenerationLimits:
    return GenerationLimits(
        settings.max_generated_rows,
        settings.max_waiting_rows,
        settings.max_generated_tokens,
        settings.max_context_tokens,
        settings.max_cache_bytes,
        settings.generation_timeout,
    )


def _build_options(settings: Settings) -> BuildOptions:
    return BuildOptions(
        settings.model_threads,
        settings.inline_budget,
        settings.max_model_bytes,
        settings.max_batch_rows,
        run_bytes=settings.run_bytes,
        answer_bytes=settings.max_answer_bytes,
    )


def _relay(settings: Settings, directory: Directory) -> Relay:
    """What asks other nodes."""
    credentials = Credentials(settings.tls_identity, settings.tls_authority)
    limits = PeerLimits(settings.max_peer_requests, settings.max_peer_bytes)
    return Relay(directory, credentials, limits, settings.max_buffered_bytes)


def _http_limits(settings: Settings) -> HttpLimits:
    return HttpLimits(
        settings.max_header_bytes,
        settings.max_body_bytes,
        settings.max_connections,
        settings.idle_timeout,
        settings.read_timeout,
    )


def _placement(settings: Settings) -> Placement:
    """Where models run, as it is set."""
    options = CudaOptions(
        settings.accelerator_device,
        settings.cudnn_conv_algo_search,
        tf32=settings.accelerator_tf32,
        has_priority=settings.accelerator_priority,
    )
    room = MemoryOptions(
        settings.accelerator_memory,
        settings.accelerator_model_memory,
        settings.accelerator_size_factor,
        may_move=settings.swap_over_cpu,
    )
    return placement(read_order(settings.providers), options, room)


def _add_gauges(metrics: Metrics, http: HttpServer, plane: DataPlane) -> None:
    metrics.add_gauge("tiercel_http_connections", "HTTP connections that are open", lambda: http.connections)
    metrics.add_gauge(
        "tiercel_event_loop_lag_seconds",
        "How late the event loop came in the last seconds, 99th percentile",
        lambda: plane.loop_lag.as_json(time.perf_counter())[0]["p99"] or 0.0,
    )
