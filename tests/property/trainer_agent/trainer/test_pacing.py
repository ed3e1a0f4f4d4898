from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tiercel.trainer_agent.trainer.pacing import WINDOW_SECONDS, Pacer

STEPS = st.lists(st.tuples(st.floats(0.001, 3), st.floats(0, 2)), min_size=1, max_size=50)


@given(st.floats(0.05, 4), STEPS)
def test_use_never_exceeds_the_limit_by_more_than_a_window(cores: float, steps: list[tuple[float, float]]) -> None:
    """Steps are (wall seconds, busy threads): after each rest, CPU time is within the limit plus one window."""
    wall = cpu = 0.0
    pacer = Pacer(wall=lambda: wall, cpu=lambda: cpu)
    pacer.limit(cores)
    for seconds, threads in steps:
        wall += seconds
        cpu += seconds * threads
        delay = pacer.delay_seconds()
        assert delay >= 0
        wall += delay
        assert cpu <= cores * (wall + WINDOW_SECONDS) + 1e-6


@given(st.floats(0.05, 4), STEPS)
def test_who_uses_less_than_the_limit_never_rests(cores: float, steps: list[tuple[float, float]]) -> None:
    wall = cpu = 0.0
    pacer = Pacer(wall=lambda: wall, cpu=lambda: cpu)
    pacer.limit(cores)
    for seconds, threads in steps:
        wall += seconds
        cpu += seconds * min(threads, 0.999 * cores)
        assert pacer.delay_seconds() == 0
