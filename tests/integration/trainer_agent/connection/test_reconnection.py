"""An agent's connection to a real broker that is killed and comes back."""

from __future__ import annotations

from pathlib import Path

from benchmarks.faults.reconnect import attack


async def test_after_reconnections_with_many_kept_reports_nothing_is_lost_nothing_is_twice_and_a_job_can_be_cancelled(
    tmp_path: Path,
) -> None:
    figures = await attack(tmp_path, runs=2, per_second=500.0, kills=1, away_seconds=1.0, most=300)
    assert (figures.lost, figures.twice) == (0, 0)
    assert figures.connections == figures.kills + 1, "one stream for each life of the broker"
    assert figures.reports > 256, "more than may be on their way at once"
