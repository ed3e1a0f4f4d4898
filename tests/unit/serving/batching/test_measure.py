from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.support import onnx_models
from tiercel.serving.batching.measure import Batching, is_borne_out
from tiercel.serving.batching.profile import LatencyProfile
from tiercel.serving.models.engine import Session, build_session
from tiercel.serving.tensors import Array

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
