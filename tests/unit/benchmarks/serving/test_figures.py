from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.serving.figures import bars_of, make_figures, rivals_ahead, sanity_bars
from benchmarks.serving.samples import Sample, Samples
from benchmarks.serving.tables import make_section

OURS = Sample("tiercel", "mlp", "json", "json", 64, 0, 40_000.0, 1.0, 2.0, 0, 25.0, 2**20)
TRITON = replace(OURS, server="Triton", rate=16_000.0, p99_ms=4.0, cpu_us=80.0)
MOSEC = replace(OURS, server="mosec", rate=32_000.0, p99_ms=1.5)
BARE = replace(OURS, server="bare", rate=48_000.0, p99_ms=1.0)


def judged(*samples: Sample) -> dict[str, tuple[float | None, bool]]:
    figures = make_figures(Samples(list(samples)), 1)
    return {bar.name: (bar.value, bar.holds) for bar in bars_of(figures)}


def test_figures_are_medians_of_the_rounds_with_their_spread() -> None:
    rounds = [replace(OURS, round=index, rate=rate) for index, rate in enumerate((10.0, 30.0, 14.0))]
    (row,) = make_figures(Samples(rounds), 1)["rows"]
    assert (row["rate"], row["rate_min"], row["rate_max"]) == (14.0, 10.0, 30.0)


def test_bars_compare_with_each_peer() -> None:
    bars = judged(OURS, TRITON, MOSEC, BARE)
    assert bars["MLP, JSON, 64 connections: rate over Triton's"] == (2.5, True)
    assert bars["MLP, JSON, 64 connections, one body for ever: rate over mosec's"] == (1.25, False)
    assert bars["MLP, JSON, 64 connections, another id each time: rate over mosec's"] == (None, False)
    assert bars["MLP, JSON, 64 connections: rate over the bare ceiling"] == (0.833, True)
    assert bars["HTTP points at which a peer has a lower p99"] == (1.0, False)
    assert bars["HTTP points at which a peer has a higher rate"] == (0.0, True)


def test_requests_that_differ_are_points_of_their_own() -> None:
    mine, other = (replace(each, bodies="ids", rate=each.rate / 2) for each in (OURS, MOSEC))
    slow = replace(mine, rate=10_000.0)
    assert (
        judged(OURS, MOSEC, mine, other)["MLP, JSON, 64 connections, another id each time: rate over mosec's"][0]
        == 1.25
    )
    found = make_figures(Samples([OURS, MOSEC, slow, other]), 2)
    assert rivals_ahead(found)[0] == ["mosec: mlp, json, 64 connections, ids bodies"]
    assert len(found["rows"]) == 4


def test_a_peer_that_was_not_measured_makes_no_bar_hold() -> None:
    bars = judged(OURS)
    assert bars["MLP, JSON, 64 connections: rate over Triton's"] == (None, False)
    assert bars["HTTP points at which a peer has a higher rate"] == (None, False)


def test_forms_of_one_kind_compare_and_others_do_not() -> None:
    plain = replace(MOSEC, form="plain", rate=90_000.0)
    binary = replace(MOSEC, form="raw", kind="binary", rate=90_000.0)
    assert rivals_ahead(make_figures(Samples([OURS, plain]), 2))[0] == ["mosec: mlp, json, 64 connections, same bodies"]
    assert rivals_ahead(make_figures(Samples([OURS, binary]), 2))[0] is None


@pytest.mark.parametrize(("failed", "rate", "holds"), [(0, 1.0, True), (1, 1.0, False), (0, 0.0, False)])
def test_a_quick_run_holds_what_does_not_depend_on_speed(failed: int, rate: float, holds: bool) -> None:
    bars = sanity_bars(make_figures(Samples([replace(OURS, failed=failed, rate=rate)]), 1))
    assert all(bar.holds for bar in bars) is holds


def test_the_section_names_servers_by_rate_and_those_left_out() -> None:
    found = Samples([OURS, MOSEC, BARE], {"Ray Serve": "pip: no such package"}, {"mosec": "0.9.8"})
    figures = make_figures(found, 3)
    result = {
        "name": "serving",
        "command": "make bench-serving",
        "made_at": "2026-01-31T12:00:00Z",
        "machine": {"cores": 2, "cpu": "a processor", "kernel": "6.1"},
        "figures": figures,
        "bars": [bar.to_json() for bar in bars_of(figures)],
    }
    text = make_section([result])
    assert text.index("| bare  (json)") < text.index("| tiercel  (json)") < text.index("| mosec 0.9.8 (json)")
    assert "* Ray Serve: pip: no such package" in text
