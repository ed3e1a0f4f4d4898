"""What has to hold of three machines, derived from the figures of the result file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.results import Bar

Json = dict[str, Any]
JOIN_SECONDS = 180.0
BACK_SECONDS = 10.0
"""Beyond the lease, within which everything is back after a cable is."""
OVER_SECONDS = 1.0
"""Within which replicas take over for a node that is lost."""
BYSTANDER, ANSWERING = "bystander", "answering"
TWICE = 1.8
"""What two nodes with as much CPU answer, of what one does."""
OWN, ROUND_ROBIN, TWO_CHOICES = "own", "round_robin", "two_choices"
"""Ways to choose between nodes that have a model."""


def bars_of(figures: Json) -> list[Bar]:
    """Of one run."""
    bystander, answering = figures["cuts"][BYSTANDER], figures["cuts"][ANSWERING]
    bound = figures["lease_seconds"] + BACK_SECONDS
    counts = figures["counts"].values()
    return [
        Bar(
            "second machine: from the token to its running job", figures["join_seconds"][0], f"<= {JOIN_SECONDS:g}", "s"
        ),
        Bar("addresses that were asked", sum(bool(each["answered"]) for each in counts), "== 3"),
        Bar("wrong answers", sum(each["wrong"] for each in counts), "== 0"),
        Bar("failed while the job moved and its endpoint with it", figures["moving"]["failed"], "== 0"),
        Bar("failed at other addresses, one that did not answer itself being cut off", bystander["elsewhere"], "== 0"),
        Bar("longest until that one was back", bystander["back_seconds"], f"<= {bound:g}", "s"),
        Bar(
            "longest until all were back, the one that answers being cut off",
            answering["back_seconds"],
            f"<= {bound:g}",
            "s",
        ),
        *_over_bars(answering, figures["replicas"]),
        Bar("failed once all were back", figures["failed_after"], "== 0"),
        *(_spread_bars(figures["spread"]) if "spread" in figures else ()),
    ]


def _spread_bars(figures: Json) -> list[Bar]:
    """Of two nodes that have a model."""
    one, two = figures["rates"]["one"], figures["rates"]["two"]
    p99 = {choice: each["p99_ms"] for choice, each in figures["delays"].items()}
    alike = "p99 where one of two nodes has half the other's CPU; round robin's is the bar"
    chosen = "p99 there; that of the power of two choices is the bar"
    return [
        Bar("two replicas answer, of what one does", round(two / one, 2), f">= {TWICE:g}", "x"),
        Bar(alike, p99[OWN], f"< {p99[ROUND_ROBIN]:g}", "ms"),
        Bar(chosen, p99[OWN], f"< {p99[TWO_CHOICES]:g}", "ms"),
        Bar("failed where requests were divided", figures["failed"], "== 0"),
    ]


def _over_bars(answering: Json, replicas: int) -> list[Bar]:
    """Where another node has the model: it takes over."""
    if replicas < 2:
        return []
    value = answering["elsewhere_seconds"]
    return [
        Bar("other addresses failed after the one that answers was cut off, for", value, f"<= {OVER_SECONDS:g}", "s")
    ]


def counts_of(lines: Iterable[Json]) -> dict[str, dict[str, int]]:
    """How many requests came out how, by node."""
    counts: dict[str, dict[str, int]] = {}
    for line in lines:
        node = counts.setdefault(line["node"], {"answered": 0, "wrong": 0, "failed": 0})
        node[line["outcome"]] += 1
    return counts


def cut_of(lines: Sequence[Json], node: str, cut: float, back: float, end: float) -> Json:
    """What a cut cost.

    Returns:
        ``here`` and ``elsewhere``: how many failed, at its own address and at others; ``in_flight``: those of them that
        had begun before; ``elsewhere_seconds``: from the cut to the beginning of the last that failed at another
        address; ``back_seconds``: from the cable's return to the last failure of one that began after it.
    """
    failed = [line for line in lines if line["outcome"] == "failed" and cut <= line["ended"] and line["began"] <= end]
    others = [line["began"] for line in failed if line["node"] != node]
    late = [line["ended"] for line in failed if line["began"] >= back]
    return {
        "node": node,
        "seconds": round(back - cut, 2),
        "here": sum(line["node"] == node for line in failed),
        "elsewhere": len(others),
        "elsewhere_seconds": round(max(others, default=cut) - cut, 2),
        "in_flight": sum(line["began"] < cut for line in failed),
        "back_seconds": round(max(late, default=back) - back, 2),
        "why": whys_of(failed),
    }


def failed_between(lines: Iterable[Json], begin: float, end: float) -> list[Json]:
    """The requests that failed and were under way then."""
    return [line for line in lines if line["outcome"] == "failed" and line["ended"] >= begin and line["began"] <= end]


def whys_of(failed: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Why requests failed, the most frequent ten."""
    counts: dict[str, int] = {}
    for line in failed:
        counts[line["why"]] = counts.get(line["why"], 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1])[:10])
