from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from testing import onnx_models
from tiercel.serving.runtime.engine import Session, build_session
from tiercel.serving.runtime.measure import Batching, is_borne_out, tried_batching
from tiercel.serving.runtime.profile import LatencyProfile
from tiercel.serving.tensors import Array

# Runs that show that rows stay apart: two alone, and together in two orders.
APART = (0.0, 0.0, 0.0, 0.0)
SAID = Batching(LatencyProfile((1, 8), (1e-3, 4e-3)), "", 64)


class TimedSession(Session):
    """Runs of it take as long as it is told, one after the other."""

    __slots__ = ("now", "ran", "seconds")

    def __init__(self, *seconds: float) -> None:
        super().__init__(onnx_models.mlp())
        self.now = 0.0
        self.ran: list[int] = []
        self.seconds = list(seconds)

    @property
    def busy_clock(self) -> Any:
        return lambda: self.now

    def run(self, outputs: Sequence[str], feeds: Mapping[str, Array], options: Any = None) -> list[Array]:
        self.ran.append(len(feeds["x"]))
        self.now += self.seconds.pop(0)
        return super().run(outputs, feeds, options)


def test_times_are_borne_out_by_a_run_of_the_largest_batch() -> None:
    session = TimedSession(4e-3)
    assert is_borne_out(session, SAID, {})
    assert session.ran == [8]


def test_batches_that_were_measured_and_will_not_be_made_are_not_tried() -> None:
    session = TimedSession(4e-3, 4e-3)
    said = Batching(LatencyProfile((1, 8, 128), (1e-3, 4e-3, 1.0)), "", 64)
    assert is_borne_out(session, said, {})
    assert session.ran == [8]


def test_the_first_run_may_be_slow_since_it_makes_room() -> None:
    assert is_borne_out(TimedSession(1.0, 5e-3), SAID, {})


def test_times_that_are_much_too_short_are_not_borne_out() -> None:
    assert not is_borne_out(TimedSession(1.0, 0.02), SAID, {})


@pytest.mark.parametrize(
    ("model", "elements"),
    [(onnx_models.mlp(), 65), (onnx_models.two_in_two_out(), 3), (onnx_models.out_of_bounds(), 1)],
    ids=["another size", "a first axis that is not free", "it fails"],
)
def test_what_does_not_fit_the_model_is_not_borne_out(model: bytes, elements: int) -> None:
    assert not is_borne_out(Session(model), Batching(SAID.profile, "", elements), {})


def test_a_session_believes_what_it_bears_out_and_else_measures_by_itself() -> None:
    said = Batching(LatencyProfile((1, 3), (10.0, 20.0)), "", 64)
    assert build_session(onnx_models.mlp(), {}, 1, 1.0, 16, said=said).batching is said
    wrong = Batching(said.profile, "", 65)
    measured = build_session(onnx_models.mlp(), {}, 1, 1.0, 16, said=wrong).batching
    assert measured.elements == 64
    assert measured.profile is not None
    assert measured.profile.rows[:2] == (1, 2)


def test_what_is_known_of_the_version_before_is_confirmed_by_two_runs() -> None:
    session = TimedSession(*APART, 1.2e-3, 3.5e-3)
    assert tried_batching(session, {}, 16, SAID) is SAID
    assert session.ran == [1, 1, 2, 3, 1, 8]


def test_a_run_that_is_slow_once_does_not_make_another_model() -> None:
    assert tried_batching(TimedSession(*APART, 0.01, 1e-3, 0.02, 4e-3), {}, 16, SAID) is SAID


@pytest.mark.parametrize(
    ("seconds", "known", "max_rows"),
    [
        ((2e-3,) * 5, SAID, 16),
        ((1e-4,), SAID, 16),
        ((1e-3, *(7e-3,) * 5), SAID, 16),
        ((), Batching(SAID.profile, "", 65), 16),
        ((), SAID, 4),
        ((), Batching(None, "it was not measured"), 16),
        ((), None, 16),
    ],
    ids=["slower", "faster", "slower in batches", "other rows", "more than is wanted", "not measured", "none before"],
)
def test_a_model_unlike_the_version_before_is_measured_anew(
    seconds: tuple[float, ...], known: Batching | None, max_rows: int
) -> None:
    session = TimedSession(*APART, *seconds, *(0.2 for _ in range(2)))
    found = tried_batching(session, {}, max_rows, known)
    assert found == Batching(LatencyProfile((1,), (0.2,)), "", 64)


def test_rows_that_do_not_stay_apart_are_noticed_whatever_is_known() -> None:
    found = tried_batching(Session(onnx_models.centred()), {}, 8, SAID)
    assert found.profile is None


def test_each_size_is_run_more_than_once_and_no_batch_is_long() -> None:
    session = TimedSession(*APART, 0.05, 0.05, 0.09, 0.09)
    found = tried_batching(session, {}, 16)
    assert found.profile == LatencyProfile((1, 2), (0.05, 0.09))
    assert session.ran[4:] == [1, 1, 2, 2]
