from __future__ import annotations

import pytest

from tiercel.serving.accounting.delays import HISTOGRAM_BOUNDS, SLOT_SECONDS, Delays, Window

CLOSE = 0.046


def ten(delays: Delays, now: float) -> Window:
    """The window of 10 s."""
    return delays.windows(now)[0]


def sixty(delays: Delays, now: float) -> Window:
    """The window of 60 s."""
    return delays.windows(now)[1]


def test_quantiles_are_those_of_the_answers() -> None:
    delays = Delays(0.0)
    for number in range(1, 101):
        delays.answered(number / 1000, 1.0)
    window = ten(delays, 1.5)
    assert (window.answers, window.failures, window.seconds) == (100, 0, 1.5)
    assert window.p50 == pytest.approx(0.050, rel=CLOSE)
    assert window.p95 == pytest.approx(0.095, rel=CLOSE)
    assert window.p99 == pytest.approx(0.099, rel=CLOSE)
    assert window.rate == pytest.approx(100 / 1.5)
    assert window.in_objective is None


def test_nothing_was_asked() -> None:
    assert ten(Delays(5.0), 5.0) == Window(0.0)
    assert ten(Delays(5.0), 5.0).rate == 0.0


def test_what_is_shorter_or_longer_than_any_bucket_is_counted_at_the_ends() -> None:
    delays = Delays(0.0)
    delays.answered(0.0, 1.0)
    delays.answered(1e-9, 1.0)
    delays.answered(1e6, 1.0)
    window = ten(delays, 1.0)
    assert window.answers == 3
    assert window.p50 is not None
    assert window.p50 < 2e-6
    assert window.p99 is not None
    assert window.p99 > 200
    assert delays.seconds == pytest.approx(1e6)


def test_refusals_and_timeouts_are_not_in_the_objective() -> None:
    delays = Delays(0.0)
    delays.judge_by(0.02)
    delays.answered(0.02, 1.0)
    delays.answered(0.021, 1.0)
    delays.failed(1.0)
    delays.failed(1.0)
    window = ten(delays, 1.0)
    assert (window.answers, window.failures, window.in_objective) == (2, 2, 0.25)
    assert (delays.on_time, delays.failures, delays.answers) == (1, 2, 2)


def test_only_failures_have_no_delay_and_are_all_late() -> None:
    delays = Delays(0.0)
    delays.judge_by(0.02)
    delays.failed(1.0)
    assert ten(delays, 1.0) == Window(1.0, failures=1, in_objective=0.0)


def test_a_window_forgets_what_is_older() -> None:
    delays = Delays(0.0)
    delays.answered(0.1, 1.0)
    for second in range(2, 30):
        delays.answered(0.001, float(second))
    short, long = delays.windows(30.0)
    assert 8 <= short.seconds <= 10
    assert short.answers == len([second for second in range(2, 30) if second >= 30 - short.seconds])
    assert short.p99 == pytest.approx(0.001, rel=CLOSE)
    assert long.answers == 29
    assert long.p99 == pytest.approx(0.1, rel=CLOSE)


@pytest.mark.parametrize("silence", [3.0, 9.0, 11.0, 59.0, 61.0, 1e6])
def test_after_a_silence_only_what_the_window_reaches_counts(silence: float) -> None:
    delays = Delays(0.0)
    for step in range(40):
        delays.answered(0.01, 0.5 * step)
    now = 19.5 + silence
    for window, length in zip(delays.windows(now), (10, 60), strict=True):
        assert window.seconds <= length
        edge = now - window.seconds
        assert window.answers == len([step for step in range(40) if 0.5 * step >= edge])


def test_answers_and_failures_of_all_windows_leave_again() -> None:
    delays = Delays(0.0)
    delays.judge_by(1.0)
    for step in range(400):
        delays.answered(0.01 * (step % 7), 0.25 * step)
        delays.failed(0.25 * step)
    short, long = delays.windows(1000.0)
    assert (short.answers, short.failures, short.in_objective) == (0, 0, None)
    assert (long.answers, long.failures, long.in_objective) == (0, 0, None)
    assert (delays.answers, delays.failures) == (400, 400)


def test_windows_are_judged_anew_when_the_objective_changes() -> None:
    delays = Delays(0.0)
    for second in range(6):
        delays.answered(0.01, float(second))
        delays.answered(0.1, float(second))
    assert ten(delays, 5.5).in_objective is None
    delays.judge_by(0.05)
    assert ten(delays, 5.5).in_objective == 0.5
    delays.judge_by(0.001)
    assert ten(delays, 5.5).in_objective == 0.0
    delays.judge_by(0.2)
    assert ten(delays, 5.5).in_objective == 1.0
    delays.answered(0.3, 5.6)
    assert ten(delays, 5.7).in_objective == pytest.approx(12 / 13)
    delays.judge_by(None)
    assert ten(delays, 5.7).in_objective is None
    assert sixty(delays, 500.0).answers == 0


def test_an_objective_said_again_changes_nothing() -> None:
    delays = Delays(0.0)
    delays.judge_by(0.1001)
    delays.answered(0.1, 1.0)
    delays.answered(0.10011, 1.0)  # in the objective's own bucket, and late
    delays.judge_by(0.1001)
    assert ten(delays, 1.0).in_objective == 0.5


def test_the_histogram_since_the_beginning_is_cumulative_and_exact_at_its_bounds() -> None:
    delays = Delays(0.0)
    spread = [0.00002, 0.0009, 0.0011, 0.1, 0.2, 3.0, 100.0]
    for number, delay in enumerate(spread):
        delays.answered(delay, number * SLOT_SECONDS * 10)
    counts, answers, seconds = delays.cumulative(HISTOGRAM_BOUNDS)
    assert counts == [len([delay for delay in spread if delay <= bound]) for bound in HISTOGRAM_BOUNDS]
    assert answers == 7
    assert seconds == pytest.approx(sum(spread))


def test_windows_go_on_in_another_process_and_counts_begin_anew() -> None:
    before = Delays(0.0)
    before.judge_by(0.02)
    for second in range(8):
        before.answered(0.01 if second % 2 else 0.1, second + 0.5)
    before.failed(8.5)
    after = Delays(8.6)
    after.judge_by(0.02)
    after.continue_from(before.history(8.6))
    assert (ten(after, 8.7), sixty(after, 8.7)) == (ten(before, 8.7), sixty(before, 8.7))
    assert (after.answers, after.failures, after.cumulative(HISTOGRAM_BOUNDS)[1]) == (0, 0, 0)
    after.answered(0.01, 9.0)
    before.answered(0.01, 9.0)
    assert ten(after, 11.0) == ten(before, 11.0)
    assert sixty(after, 200.0) == Window(60.0 - SLOT_SECONDS), "and what was carried goes by"


def test_a_model_that_is_seconds_old_may_go_on_too() -> None:
    before = Delays(0.0)
    before.answered(0.01, 0.5)
    after = Delays(1.0)
    after.continue_from(before.history(1.0))
    assert ten(after, 1.5) == ten(before, 1.5)
