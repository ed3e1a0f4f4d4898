from __future__ import annotations

import io

import pytest
from rich.console import Console

from benchmarks.demo_state import DemoState, LoadFigures
from benchmarks.live_view import PlainView, TerminalView, happenings, render, status_line, view_for
from benchmarks.timeline import FirstAnswer
from tests.support.demo_events import made_up_record, made_up_timeline


@pytest.fixture
def state() -> DemoState:
    timeline = made_up_timeline()
    made_up_record(timeline)
    return DemoState(timeline=timeline)


def console(*, terminal: bool, width: int = 80) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=width)


def text_of(target: Console) -> str:
    assert isinstance(target.file, io.StringIO)
    return target.file.getvalue()


def test_the_picture_fits_into_80_columns_and_names_everything(state: DemoState) -> None:
    target = console(terminal=False)
    target.print(render(state))
    lines = text_of(target).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert "…" not in text_of(target)
    for track in state.timeline:
        assert any(track.name in line and f"v{len(track.tiers)}" in line for line in lines)


def test_a_job_on_its_way_shows_the_tier_that_is_next(state: DemoState) -> None:
    target = console(terminal=False)
    state.timeline = made_up_timeline()
    for track in state.timeline:
        track.points.clear()
    target.print(render(state))
    assert text_of(target).count("completed") == len(state.timeline.jobs)


def test_plain_lines_tell_each_thing_once(state: DemoState) -> None:
    target = console(terminal=False)
    with PlainView(target) as view:
        for _ in range(3):
            view.show(state)
    text = text_of(target)
    assert text.count("Digits MLP: tier 2 (accuracy 0.92) reached") == 1
    assert text.count("mnist-vae: version 3 answers") == 1


def test_plain_lines_tell_of_a_new_thing_at_once(state: DemoState) -> None:
    target = console(terminal=False)
    view = PlainView(target)
    view.show(state)
    before = text_of(target)
    state.timeline.first_answers.append(FirstAnswer("digits", 9, 1.0))
    view.show(state)
    assert "digits: version 9 answers" in text_of(target).removeprefix(before)


def test_happenings_never_change_their_words(state: DemoState) -> None:
    assert happenings(state) == happenings(state)
    assert len(happenings(state)) == len(set(happenings(state)))


def test_failures_are_in_the_status_line(state: DemoState) -> None:
    state.load.add({"requests": 10, "failed": 3, "latencies": [0.001] * 7}, now=1.0)
    assert "10 requests" in status_line(state)
    assert "3 failed" in status_line(state)


def test_ci_gets_plain_lines_even_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "1")
    assert isinstance(view_for(console(terminal=True)), PlainView)
    monkeypatch.delenv("CI")
    assert isinstance(view_for(console(terminal=True)), TerminalView)
    assert isinstance(view_for(console(terminal=False)), PlainView)


def test_the_rate_is_that_of_the_last_seconds() -> None:
    load = LoadFigures()
    for second in range(1, 21):
        load.add(
            {"requests": 10 * second if second <= 10 else 100 + 60 * (second - 10), "failed": 0, "latencies": []},
            second,
        )
    assert load.rate == pytest.approx(60)
