from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from testing.fake_cuda import FakeCuda
from tiercel.trainer_agent.trainer.accelerator_clock import CudaClock
from tiercel.trainer_agent.trainer.accelerator_pacing import STEPS_AHEAD, AcceleratorPacer
from tiercel.trainer_agent.trainer.pacing import WINDOW_SECONDS

# Seconds that the accelerator is at work, and seconds to fetch what comes next.
STEPS = st.lists(st.tuples(st.floats(0.001, 3), st.floats(0, 2)), min_size=1, max_size=40)


@given(st.floats(0.05, 1.0), STEPS)
def test_use_never_exceeds_the_fraction_by_more_than_a_window_and_the_steps_in_flight(
    fraction: float, steps: list[tuple[float, float]]
) -> None:
    cuda = FakeCuda()
    pacer = AcceleratorPacer([CudaClock(0, cuda=cuda)], wall=lambda: cuda.now)
    pacer.limit(fraction)
    used, longest = 0.0, max(step for step, _ in steps)
    for step, fetching in steps:
        cuda.now += fetching
        while (delay := pacer.delay_seconds()) > 0:
            cuda.now += delay
        assert used <= fraction * (cuda.now + WINDOW_SECONDS) + (STEPS_AHEAD + 1) * longest
        pacer.begin()
        cuda.issue(step)
        pacer.end()
        used += step


@given(st.floats(0.05, 1.0), STEPS)
def test_all_that_is_measured_is_charged_in_the_end(fraction: float, steps: list[tuple[float, float]]) -> None:
    cuda = FakeCuda()
    pacer = AcceleratorPacer([CudaClock(0, cuda=cuda)], wall=lambda: cuda.now)
    pacer.limit(fraction)
    for step, _ in steps:
        pacer.begin()
        cuda.issue(step)
        pacer.end()
        while (delay := pacer.delay_seconds()) > 0:
            cuda.now += delay
    cuda.now = max(cuda.now, cuda.free_at)
    while (delay := pacer.delay_seconds()) > 0:
        cuda.now += delay
    used = sum(step for step, _ in steps)
    assert abs(pacer.reading().busy_seconds - used) < 1e-6
    assert used <= fraction * (cuda.now + WINDOW_SECONDS) + 1e-3
