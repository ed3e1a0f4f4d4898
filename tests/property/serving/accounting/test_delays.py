"""Windows against all that was ever counted, kept in a list."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tiercel.serving.accounting.delays import WINDOWS, Delays

steps = st.lists(
    st.tuples(st.floats(0.0, 70.0), st.none() | st.floats(1e-6, 200.0)),
    min_size=1,
    max_size=60,
)


@given(steps, st.floats(1e-5, 10.0))
def test_windows_tell_what_happened_in_them(events: list[tuple[float, float | None]], objective: float) -> None:
    delays, now = Delays(0.0), 0.0
    delays.judge_by(objective)
    happened: list[tuple[float, float | None]] = []
    for pause, delay in events:
        now += pause
        happened.append((now, delay))
        if delay is None:
            delays.failed(now)
        else:
            delays.answered(delay, now)
    for window, length in zip(delays.windows(now), WINDOWS, strict=True):
        assert min(now, length - 2.0) <= window.seconds <= length
        # An event at the window's very edge may have been counted to the slot before it by rounding.
        inside = [delay for at, delay in happened if at >= now - window.seconds + 1e-9]
        outside = [delay for at, delay in happened if at < now - window.seconds - 1e-9]
        assert len(inside) <= window.answers + window.failures <= len(happened) - len(outside)
        if window.answers + window.failures != len(inside):
            continue
        answered = sorted(delay for delay in inside if delay is not None)
        assert (window.answers, window.failures) == (len(answered), len(inside) - len(answered))
        on_time = [delay for delay in answered if delay <= objective]
        assert window.in_objective == (len(on_time) / len(inside) if inside else None)
        if answered:
            for part, found in ((0.5, window.p50), (0.95, window.p95), (0.99, window.p99)):
                exact = answered[math.ceil(part * len(answered)) - 1]
                assert found is not None
                assert abs(found - exact) <= 0.05 * exact
