"""From what was seen to ``demo-report.json`` and the bars. Pure."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.averages import rounded
from benchmarks.results import Bar
from benchmarks.timeline import JobTrack, Timeline
from testing.load_record import SWAP_WINDOW_SECONDS, LoadRecord, percentile_ms
from tiercel.broker.client import TierStatus

Json = dict[str, Any]


def build_report(timeline: Timeline, record: LoadRecord, *, mqtt_messages: int, runtime: str, policy: str) -> Json:
    """The content of ``demo-report.json``.

    ``reached_s`` and ``delivered_s`` are seconds since the job was submitted; ``metric`` of a tier is the metric as it
    was measured again on the exported model. ``swap_seconds`` go from the report that reached a tier to the first
    answer from its version, as the application saw it.
    """
    swaps = {track.id: [_swap_seconds(track, tier, record) for tier in track.tiers] for track in timeline}
    seen = [seconds for each in swaps.values() for seconds in each if seconds is not None]
    return {
        "jobs": [_job(track, record, swaps[track.id]) for track in timeline],
        "requests": _requests(timeline, record),
        "mqtt_messages": mqtt_messages,
        "reallocations": timeline.reallocations,
        "runtime": runtime,
        "policy": policy,
        "work_seconds": round(timeline.ended_at - timeline.began_at, 3),
        "swap_seconds": [round(seconds, 3) for seconds in seen],
        "swap_seconds_median": round(statistics.median(seen), 3) if seen else None,
        "swap_window": (
            f"requests due within {SWAP_WINDOW_SECONDS:g} s before or after any version began to answer, "
            "to whichever endpoint"
        ),
    }


def build_bars(report: Json) -> list[Bar]:
    """What a demo's report has to show."""
    tiers = [tier for job in report["jobs"] for tier in job["tiers"]]
    delivered = sum(tier["delivered_s"] is not None for tier in tiers)
    requests = report["requests"]
    # Work that was not done took no time that could be compared with a goal.
    work_seconds = report["work_seconds"] if delivered == len(tiers) else None
    return [
        Bar("tiers delivered", delivered, f"== {len(tiers)}"),
        Bar("failed requests", requests["failed"], "== 0"),
        Bar("the whole work", work_seconds, "<= 120", "s"),
        Bar("tier reported to first answer from the new version, median", report["swap_seconds_median"], "<= 2.0", "s"),
        Bar("p99 of requests near a swap over p99 of the rest", _ratio(requests), "<= 2.0"),
        Bar("requests a second, total", requests["per_second"], ">= 50", "/s"),
    ]


def find_shortfalls(report: Json, timeline: Timeline) -> list[str]:
    """Sentences about tiers that were not delivered and requests that failed; none when all is well."""
    sentences = []
    for job in report["jobs"]:
        missing = [str(tier["target"]) for tier in job["tiers"] if tier["delivered_s"] is None]
        if missing:
            why = job["reason"] or "it was still at work"
            # Output may name places of this machine: it is for who sees this, not for the report.
            last = timeline.jobs[job["id"]].log_tail.strip().rpartition("\n")[2]
            words = f" Its last line of output: {last}" if last else ""
            sentences.append(f"Job {job['id']} ({job['name']}) did not deliver {', '.join(missing)}: {why}.{words}")
    requests = report["requests"]
    if not requests["total"]:
        sentences.append("The application sent no request, since no endpoint ever got a version.")
    if requests["failed"]:
        first = requests["failures"][0]["why"] if requests["failures"] else "no reason was kept"
        sentences.append(f"{requests['failed']} of {requests['total']} requests failed; the first: {first}.")
    return sentences


def _job(track: JobTrack, record: LoadRecord, swaps: list[float | None]) -> Json:
    scores = record.scores(track.endpoint)
    return {
        "id": track.id,
        "name": track.name,
        "tenant": track.tenant,
        "endpoint": track.endpoint,
        "metric_name": track.metric,
        "direction": track.direction.value,
        "state": track.state.value,
        "reason": track.reason,
        "reallocations": track.moves,
        "cpu_seconds": round(track.cpu_seconds, 3),
        "tiers": [_tier(track, tier, swap, scores) for tier, swap in zip(track.tiers, swaps, strict=True)],
    }


def _tier(track: JobTrack, tier: TierStatus, swap: float | None, scores: dict[int, tuple[float, int]]) -> Json:
    seen, answers = scores.get(tier.version or 0, (None, 0))
    return {
        "target": tier.target,
        "metric": tier.delivered_value,
        "reached_s": tier.reached_seconds,
        "delivered_s": tier.delivered_seconds,
        "version": tier.version,
        "metric_name": track.metric,
        "state": tier.state.value,
        "reported": tier.reached_value,
        "first_answer_after_s": None if swap is None else round(swap, 3),
        "application_metric": None if seen is None else round(seen, 4),
        "application_answers": answers,
    }


def _requests(timeline: Timeline, record: LoadRecord) -> Json:
    answered = [request.latency for request in record.requests if not request.failed]
    near, rest = record.split_by_swaps(timeline.swaps())
    return {
        "total": len(record.requests),
        "failed": record.failed,
        "p50_ms": rounded(percentile_ms(answered, 50), 3),
        "p99_ms": rounded(percentile_ms(answered, 99), 3),
        "swap_window_p99_ms": rounded(percentile_ms(near, 99), 3),
        "rest_p99_ms": rounded(percentile_ms(rest, 99), 3),
        "swap_window_requests": len(near),
        "application_late_p99_ms": rounded(percentile_ms([request.late for request in record.requests], 99), 3),
        "max_ms": rounded(max(answered) * 1000 if answered else None, 3),
        "per_second": round(record.rate(), 2),
        "slowest_second": record.slowest_second_rate(),
        "application_cpu_seconds": round(record.cpu_seconds, 3),
        "failures": [{"endpoint": each.endpoint, "why": each.why} for each in record.failures],
    }


def _swap_seconds(track: JobTrack, tier: TierStatus, record: LoadRecord) -> float | None:
    if tier.version is None or tier.reached_seconds is None:
        return None
    first = record.first_answer(track.endpoint, tier.version)
    return None if first is None else first - (track.submitted_at + tier.reached_seconds)


def _ratio(requests: Json) -> float | None:
    near, rest = requests["swap_window_p99_ms"], requests["rest_p99_ms"]
    return None if near is None or not rest else round(near / rest, 3)
