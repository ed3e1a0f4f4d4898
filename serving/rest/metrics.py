"""The server's numbers as Prometheus reads them: Triton's metrics under Triton's names, and what only this server has.

Nothing here runs per request: the collector reads what the hot path counts anyway, when somebody asks. Counters are
kept by version and go on when a version returns; of a model's replaced versions the latest few are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from tiercel import __version__
from tiercel.serving.access.gate import REASONS
from tiercel.serving.accounting.delays import HISTOGRAM_BOUNDS, Delays
from tiercel.serving.accounting.model_statistics import ModelStatistics
from tiercel.serving.generation.generation import Generation
from tiercel.serving.models.registry import ModelRecord, Registry
from tiercel.serving.routing.relay import OUTCOMES

_OF_VERSION = ("model", "version")
_FEEDBACK = {
    "rows": "Rows that feedback came on, of the last ones that it came on",
    "accuracy": "Fraction of them that was answered rightly",
    "low": "The lower end of its interval, 95 %",
    "high": "The upper end of its interval, 95 %",
}
_MICROSECONDS = 1e6
_TRITON: tuple[tuple[str, str, Callable[[ModelStatistics], float]], ...] = (
    ("nv_inference_request_success", "Requests answered", lambda of: of.successes),
    ("nv_inference_count", "Rows answered; a request without a batch axis is one", lambda of: of.inferences),
    ("nv_inference_exec_count", "Runs of the model", lambda of: of.executions),
    (
        "nv_inference_request_duration_us",
        "Time from arrival to answer, added up, in microseconds",
        lambda of: int(of.success_seconds * _MICROSECONDS),
    ),
    (
        "nv_inference_queue_duration_us",
        "Time requests waited, added up, in microseconds",
        lambda of: int(of.queue_seconds * _MICROSECONDS),
    ),
    (
        "nv_inference_compute_input_duration_us",
        "Time inputs of batches were put together, added up over requests, in microseconds",
        lambda of: int(of.compute_input_seconds * _MICROSECONDS),
    ),
    (
        "nv_inference_compute_infer_duration_us",
        "Time the model ran, added up over requests, in microseconds",
        lambda of: int(of.compute_infer_seconds * _MICROSECONDS),
    ),
    (
        "nv_inference_compute_output_duration_us",
        "Time outputs of batches were taken apart, added up over requests, in microseconds",
        lambda of: int(of.compute_output_seconds * _MICROSECONDS),
    ),
)


@dataclass(frozen=True, slots=True)
class _Gauge:
    """A number of the whole server."""

    name: str
    documentation: str
    read: Callable[[], float]


@dataclass(frozen=True, slots=True)
class _Snapshot(Collector):
    """What was collected, so that it can be written down in another thread."""

    families: Sequence[Metric]

    def collect(self) -> Iterable[Metric]:
        """What was collected."""
        return self.families


class Metrics(Collector):
    """Collects the numbers of one server."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._gauges: list[_Gauge] = []
        self._refusals: Mapping[str, int] = {}
        self._handed_on: Mapping[str, int] = {}
        self._accuracies: Callable[[], Sequence[Mapping[str, Any]]] = tuple
        self._generation: Generation | None = None
        self._inputs: Callable[[], Sequence[Mapping[str, Any]]] = tuple
        self._process = ProcessCollector(registry=None)

    def add_gauge(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        """Have a number of the whole server collected.

        Args:
            name: As Prometheus has it, with its unit.
            documentation: What it is.
            read: Gives it; called on the event loop.
        """
        self._gauges.append(_Gauge(name, documentation, read))

    def add_refusals(self, refusals: Mapping[str, int]) -> None:
        """Have refusals of callers collected, by reason; the mapping is read each time."""
        self._refusals = refusals

    def add_handed_on(self, outcomes: Mapping[str, int]) -> None:
        """Have attempts to hand requests on collected, by what became of them; the mapping is read each time."""
        self._handed_on = outcomes

    def add_feedback(self, accuracies: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
        """Have collected how often versions were right: ``accuracies`` is called on the event loop."""
        self._accuracies = accuracies

    def add_generation(self, generation: Generation) -> None:
        """Have what is generated collected."""
        self._generation = generation

    def add_inputs(self, inputs: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
        """Have collected how far what versions are asked is from what it was: called on the event loop."""
        self._inputs = inputs

    def snapshot(self) -> Collector:
        """All numbers as they are now; called on the event loop."""
        return _Snapshot(list(self.collect()))

    def collect(self) -> Iterator[Metric]:
        """All metrics; called on the event loop."""
        records = self._registry.records()
        yield from _of_versions(records)
        yield from _of_loaded(records)
        yield from _of_models(records)
        yield InfoMetricFamily("tiercel_serving", "The server", value={"version": __version__})
        for gauge in self._gauges:
            yield GaugeMetricFamily(gauge.name, gauge.documentation, value=gauge.read())
        yield from _of_generation(self._generation)
        refused = CounterMetricFamily(
            "tiercel_access_refusals", "Requests refused for who sent them, by reason", labels=("reason",)
        )
        for reason in REASONS:
            refused.add_metric((reason,), self._refusals.get(reason, 0))
        yield refused
        handed_on = CounterMetricFamily(
            "tiercel_handed_on",
            "Attempts to have another node answer, by what became of them",
            labels=("outcome",),
        )
        for outcome in OUTCOMES:
            handed_on.add_metric((outcome,), self._handed_on.get(outcome, 0))
        yield handed_on
        yield from _of_feedback(self._accuracies())
        yield from _of_inputs(self._inputs())
        yield from self._process.collect()


def write(snapshot: Collector, accept: str) -> tuple[bytes, str]:
    """A snapshot as text; may be called in any thread.

    Args:
        snapshot: From :meth:`Metrics.snapshot`.
        accept: The HTTP header by which a caller says whether it reads OpenMetrics.

    Returns:
        The text and its media type.
    """
    encode, media_type = choose_encoder(accept)
    text = encode(snapshot)
    if media_type.startswith("text/plain"):
        # Triton's counters do not end in "_total", without which OpenMetrics takes nothing for a counter; the older
        # format does. All that is untyped here is a counter.
        text = text.replace(b" untyped\n", b" counter\n")
    return text, media_type


def _of_versions(records: Sequence[ModelRecord]) -> Iterator[Metric]:
    """What Triton has, by model and version."""
    kept = [
        ({"model": record.name, "version": str(version)}, statistics)
        for record in records
        for version, statistics in record.statistics.items()
    ]
    for name, documentation, read in _TRITON:
        metric = Metric(name, documentation, "unknown")
        for labels, statistics in kept:
            metric.add_sample(name, labels, read(statistics))
        yield metric
    failures = Metric("nv_inference_request_failure", "Requests that failed, by reason", "unknown")
    for labels, statistics in kept:
        for reason, count in statistics.failures.items():
            failures.add_sample(failures.name, labels | {"reason": reason}, count)
    yield failures


def _of_loaded(records: Sequence[ModelRecord]) -> Iterator[Metric]:
    """What there is to say now of versions that answer."""
    pending = GaugeMetricFamily("nv_inference_pending_request_count", "Requests that wait now", labels=_OF_VERSION)
    in_flight = GaugeMetricFamily(
        "tiercel_model_requests_in_flight", "Requests that wait or run now", labels=_OF_VERSION
    )
    provider = GaugeMetricFamily(
        "tiercel_model_provider", "1 for what runs the version: cpu or cuda", labels=(*_OF_VERSION, "provider")
    )
    memory = GaugeMetricFamily(
        "tiercel_model_accelerator_memory_bytes", "Accelerator memory the version is accounted for", labels=_OF_VERSION
    )
    for record in records:
        if record.live is not None:  # the versions of a model wait in one queue
            pending.add_metric((record.name, record.live.version_text), len(record.account.waiting))
        for loaded in record.answering:
            of_version, session = (record.name, loaded.version_text), loaded.session
            in_flight.add_metric(of_version, loaded.in_flight)
            provider.add_metric((*of_version, session.provider.value), 1)
            if session.holding is not None:
                memory.add_metric(of_version, session.holding.size)
    yield from (pending, in_flight, provider, memory)


def _of_generation(generation: Generation | None) -> Iterator[Metric]:
    """What was generated, of models that were asked for it, and how much is on its way."""
    tokens = CounterMetricFamily("tiercel_generated_tokens", "Tokens of answers", labels=("model",))
    prompts = CounterMetricFamily("tiercel_prompt_tokens", "Tokens of prompts that were read", labels=("model",))
    first = HistogramMetricFamily(
        "tiercel_first_token_seconds", "Time from a request's arrival to its first token", labels=("model",)
    )
    for model, statistics in generation.statistics.items() if generation is not None else ():
        tokens.add_metric((model,), statistics.tokens)
        prompts.add_metric((model,), statistics.prompt_tokens)
        first.add_metric((model,), *_histogram(statistics.first_token))
    rows = GaugeMetricFamily("tiercel_generation_rows", "Answers on their way now", labels=("state",))
    size = GaugeMetricFamily("tiercel_generation_cache_bytes", "Bytes that are held for keys and values now", labels=())
    if generation is not None:
        for state, count in zip(("begun", "waiting"), generation.rows, strict=True):
            rows.add_metric((state,), count)
        size.add_metric((), generation.room.used)
    yield from (tokens, prompts, first, rows, size)


def _histogram(delays: Delays) -> tuple[list[tuple[str, float]], float]:
    counts, answers, seconds = delays.cumulative(HISTOGRAM_BOUNDS)
    buckets = [(repr(bound), float(count)) for bound, count in zip(HISTOGRAM_BOUNDS, counts, strict=True)]
    return [*buckets, ("+Inf", float(answers))], seconds


def _of_feedback(accuracies: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    """How often versions were right by what applications said; of as many versions as have a window."""
    for name, documentation in _FEEDBACK.items():
        gauge = GaugeMetricFamily(f"tiercel_feedback_{name}", documentation, labels=("model", "variant", "version"))
        for said in accuracies:
            gauge.add_metric((said["model"], said["variant"], said["version"]), said[name])
        yield gauge


def _of_inputs(inputs: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    """How far what is asked of versions that answer is from what it was at first."""
    labels = ("model", "variant", "version")
    drifted = GaugeMetricFamily(
        "tiercel_inputs_drifted", "1 where what the version is asked is other than at first", labels=labels
    )
    distance = GaugeMetricFamily(
        "tiercel_inputs_distance",
        "Of the number that is farthest off: largest difference of frequencies",
        labels=labels,
    )
    bound = GaugeMetricFamily("tiercel_inputs_bound", "The distance above which it has drifted", labels=labels)
    for said in inputs:
        of_version = (said["model"], said["variant"], said["version"])
        drifted.add_metric(of_version, said["drifted"])
        bound.add_metric(of_version, said["bound"])
        if said["farthest"]:
            distance.add_metric(of_version, said["farthest"][0]["distance"])
    yield from (drifted, distance, bound)


def _of_models(records: Sequence[ModelRecord]) -> Iterator[Metric]:
    """What belongs to a model through all its versions."""
    live = GaugeMetricFamily("tiercel_model_live_version", "The version that answers; 0 is none", labels=("model",))
    requests = CounterMetricFamily("tiercel_model_requests", "Requests that made sense", labels=("model",))
    cpu = CounterMetricFamily("tiercel_model_cpu_seconds", "CPU that running the model took", labels=("model",))
    accelerator = CounterMetricFamily(
        "tiercel_model_accelerator_seconds", "Time an accelerator was kept for running the model", labels=("model",)
    )
    swaps = CounterMetricFamily("tiercel_model_swaps", "Versions that took the place of another", labels=("model",))
    refusals = CounterMetricFamily("tiercel_model_load_refusals", "Versions that were refused", labels=("model",))
    delay = HistogramMetricFamily(
        "tiercel_model_delay_seconds", "Time from arrival to the answer's hand-over", labels=("model",)
    )
    for record in records:
        labels = (record.name,)
        live.add_metric(labels, record.live.version if record.live is not None else 0)
        requests.add_metric(labels, record.account.requests)
        cpu.add_metric(labels, record.account.cpu_seconds)
        accelerator.add_metric(labels, record.account.accelerator_seconds)
        swaps.add_metric(labels, record.swaps)
        refusals.add_metric(labels, record.refusals)
        delay.add_metric(labels, *_histogram(record.account.delays))
    yield from (live, requests, cpu, accelerator, swaps, refusals, delay)
