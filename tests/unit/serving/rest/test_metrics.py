from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from prometheus_client.parser import text_string_to_metric_families

from testing import onnx_models
from tiercel.core.errors import CapacityExceededError, DeadlineExceededError, InferenceFailedError, InvalidRequestError
from tiercel.serving.accounting.model_statistics import FAILURE_REASONS, ModelStatistics
from tiercel.serving.canary_plan import CanaryPlan
from tiercel.serving.models.canary.trials import Trial
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.models.registry import ModelRecord, Registry
from tiercel.serving.rest.metrics import Metrics, write
from tiercel.serving.runtime.engine import Session

SESSION = Session(onnx_models.plus(1.0))


def live(record: ModelRecord, version: int) -> ModelStatistics:
    """Let a version of a model be live; returns its statistics."""
    statistics = record.statistics_of(version)
    record.flip(LoadedVersion(record.name, version, SESSION, record.account, statistics))
    return statistics


def name_of(sample: str) -> str:
    """The name that was written."""
    return sample.removesuffix("_total") if sample.startswith("nv_") else sample


def values(registry: Registry) -> dict[tuple[str, str], float]:
    """Values by metric and by the labels but the model's; this parser would put _total after Triton's counters."""
    text, _ = write(Metrics(registry).snapshot(), "")
    return {
        (
            name_of(sample.name),
            ",".join(value for name, value in sample.labels.items() if name != "model"),
        ): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_counts_and_durations_are_tritons() -> None:
    registry = Registry()
    statistics = live(registry.record("m"), 3)
    statistics.executed(4, compute_infer=0.5, compute_input=0.125)
    statistics.succeeded(10.0, 1.0, compute_infer=0.5, rows=3, compute_input=0.125)
    statistics.succeeded(10.0, 0.75, compute_infer=0.5, rows=1, compute_input=0.125)
    found = values(registry)
    assert found["nv_inference_request_success", "3"] == 2
    assert found["nv_inference_count", "3"] == 4
    assert found["nv_inference_exec_count", "3"] == 1
    assert found["nv_inference_request_duration_us", "3"] == 1_750_000
    assert found["nv_inference_compute_infer_duration_us", "3"] == 1_000_000
    assert found["nv_inference_compute_input_duration_us", "3"] == 250_000
    assert found["nv_inference_queue_duration_us", "3"] == 500_000


def test_failures_are_counted_by_reason() -> None:
    registry = Registry()
    statistics = live(registry.record("m"), 1)
    for error in (
        CapacityExceededError("full"),
        DeadlineExceededError("late"),
        InferenceFailedError("no"),
        InvalidRequestError("x"),
    ):
        statistics.failed(error, 1.0)
    found = values(registry)
    by_reason = {reason: found["nv_inference_request_failure", f"{reason},1"] for reason in FAILURE_REASONS}
    assert by_reason == {"REJECTED": 2, "CANCELED": 0, "BACKEND": 1, "OTHER": 1}


def test_counters_survive_swaps_and_go_on_when_a_version_returns() -> None:
    registry = Registry()
    record = registry.record("m")
    live(record, 1).succeeded(1.0, 0.5, 0.25)
    live(record, 2).succeeded(1.0, 0.5, 0.25)
    assert [values(registry)["nv_inference_request_success", version] for version in "12"] == [1, 1]
    live(record, 1).succeeded(1.0, 0.5, 0.25)
    found = values(registry)
    assert [found["nv_inference_request_success", version] for version in "12"] == [2, 1]
    assert found["tiercel_model_swaps_total", ""] == 2
    assert found["tiercel_model_live_version", ""] == 1


def test_what_is_kept_of_replaced_versions_is_bounded_and_never_the_live_ones() -> None:
    record = Registry().record("m")
    for version in range(1, 1000):
        live(record, version)
    assert len(record.statistics) <= 8
    assert max(record.statistics) == 999


def test_classic_counters_are_counters_and_openmetrics_is_understood() -> None:
    registry = Registry()
    live(registry.record("m"), 1)
    metrics = Metrics(registry)
    metrics.add_gauge("tiercel_things", "Things", lambda: 7)
    classic, media_type = write(metrics.snapshot(), "text/plain")
    assert media_type.startswith("text/plain; version=0.0.4")
    assert b"# TYPE nv_inference_request_success counter\n" in classic
    assert b"untyped" not in classic
    assert b"tiercel_things 7.0\n" in classic
    modern, media_type = write(metrics.snapshot(), "application/openmetrics-text; version=1.0.0")
    assert media_type.startswith("application/openmetrics-text")
    assert modern.endswith(b"# EOF\n")


def test_the_delay_histogram_is_cumulative() -> None:
    registry = Registry()
    record = registry.record("m")
    live(record, 1)
    for delay in (0.0001, 0.01, 0.01, 100.0):
        record.account.delays.answered(delay, 1.0)
    found = values(registry)
    counts = [value for (name, _), value in found.items() if name == "tiercel_model_delay_seconds_bucket"]
    assert counts == sorted(counts)
    assert found["tiercel_model_delay_seconds_bucket", "0.015625"] == 3
    assert found["tiercel_model_delay_seconds_bucket", "+Inf"] == found["tiercel_model_delay_seconds_count", ""] == 4


def test_the_statistics_extension_has_batches_and_every_duration() -> None:
    statistics = ModelStatistics()
    assert statistics.as_json("m", "1")["last_inference"] == 0
    statistics.executed(4, compute_infer=0.5, compute_input=0.25, compute_output=0.125)
    statistics.executed(4, compute_infer=0.5)
    statistics.executed(1, compute_infer=0.1)
    statistics.succeeded(1.0, 1.0, 0.5, 4, 0.25, 0.125)
    statistics.failed(CapacityExceededError("full"), 1.0, 2.0)
    found = statistics.as_json("m", "1")
    assert [batch["batch_size"] for batch in found["batch_stats"]] == [1, 4]
    assert found["batch_stats"][1]["compute_infer"] == {"count": 2, "ns": 1_000_000_000}
    durations = found["inference_stats"]
    assert durations["fail"] == {"count": 1, "ns": 2_000_000_000}
    assert durations["queue"] == durations["compute_output"] == {"count": 1, "ns": 125_000_000}
    assert durations["compute_input"] == {"count": 1, "ns": 250_000_000}


def test_sizes_of_batches_that_are_kept_are_bounded() -> None:
    statistics = ModelStatistics()
    for rows in range(1, 5000):
        statistics.executed(rows, 0.001)
    assert len(statistics.batches) <= 512
    assert sum(times.count for times in statistics.batches.values()) == 4999


def test_a_version_on_trial_is_told_of_beside_the_live_one() -> None:
    registry = Registry()
    record = registry.record("m")
    live(record, 1)
    assert record.live is not None
    new = LoadedVersion("m", 2, SESSION, record.account, record.statistics_of(2))
    with ThreadPoolExecutor(1) as threads:
        record.trial = Trial(CanaryPlan(0.5), record.live, new, threads, 0.0)
    new.acquire()
    found = values(registry)
    assert [found["tiercel_model_requests_in_flight", version] for version in ("1", "2")] == [0, 1]
    assert ("nv_inference_pending_request_count", "2") not in found, "they wait in one queue"
