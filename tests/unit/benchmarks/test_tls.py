"""What is concluded from what TLS costs."""

from __future__ import annotations

from typing import Any

from benchmarks.tls.__main__ import section_of
from benchmarks.tls.bars import LOOPS, OWN, PLAIN, bars_of


def window(door: str, bodies: str, cpu_us: float, rate: float, round_: int = 0, failed: int = 0) -> dict[str, Any]:
    return {
        "round": round_,
        "door": door,
        "bodies": bodies,
        "rate": rate,
        "cpu_us": cpu_us,
        "p50_ms": 1.0,
        "p99_ms": 2.0,
        "failed": failed,
    }


def windows(own: float, round_: int = 0, failed: int = 0) -> list[dict[str, Any]]:
    return [
        window(door, bodies, cpu, 1e6 / cpu, round_, failed)
        for bodies in ("same", "numbers")
        for door, cpu in ((PLAIN, 20.0), (LOOPS, 40.0), (OWN, own))
    ]


def figures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"windows": rows, "model": "mlp", "connections": 64, "seconds": 2}


def test_a_request_that_takes_a_quarter_more_costs_a_fifth_of_the_rate() -> None:
    bars = bars_of(figures(windows(25.0)))
    assert [round(bar.value or 0, 6) for bar in bars] == [0.2, 0.2, 0.625, 0.2, 0.2, 0.625, 0.0]
    assert [bar.holds for bar in bars] == [True, True, True, False, False, True, True]


def test_each_round_is_compared_with_itself_and_one_without_all_doors_with_nothing() -> None:
    slow = [{**row, "cpu_us": row["cpu_us"] * 9, "rate": row["rate"] / 9} for row in windows(22.0, round_=1)]
    alone = [window(OWN, "same", 1e6, 1.0, round_=2)]
    bars = bars_of(figures([*windows(22.0), *slow, *alone]))
    assert all(bar.holds for bar in bars)
    assert round(bars[0].value or 0, 9) == round(bars[1].value or 1, 9) == round(1 - 20 / 22, 9)


def test_nothing_measured_and_failed_requests_hold_nothing() -> None:
    assert not any(bar.holds for bar in bars_of(figures([]))[:-1])
    assert not bars_of(figures(windows(21.0, failed=1)))[-1].holds


def test_documents_show_each_door_and_bar() -> None:
    text = section_of(figures(windows(22.0)), bars_of(figures(windows(22.0))))
    assert "| numbers | own layer | 45,455 | 22.0 | 2.00 |" in text
    assert "| same body: part of the rate that TLS costs, by CPU a request |" in text
