from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from benchmarks.report import build_bars, build_report
from benchmarks.summary import print_summary, sentences
from benchmarks.timeline import Timeline
from testing.load_record import LoadRecord
from tests.support.demo_events import made_up_record, made_up_timeline


def test_the_summary_fits_into_80_columns_and_names_jobs_bars_and_files() -> None:
    timeline = made_up_timeline()
    report = build_report(timeline, made_up_record(timeline), mqtt_messages=9, runtime="process", policy="tradl")
    console = Console(file=io.StringIO(), width=80)
    print_summary(console, report, build_bars(report), {"Plot": Path("demo-output/demo.png")})
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "…" not in text
    for expected in ("Digits MLP", "alice, accuracy", "bob, loss", "≤ 180", "failed requests", "demo-output/demo.png"):
        assert expected in text


def test_the_story_is_told_even_when_nothing_came_of_it() -> None:
    timeline: Timeline = made_up_timeline()
    report = build_report(timeline, LoadRecord(), mqtt_messages=0, runtime="process", policy="fair")
    story = " ".join(sentences(report))
    assert "policy 'fair'" in story
    assert "None" not in story
