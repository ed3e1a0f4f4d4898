"""A curve that was thinned out looks the same: no peak is lost, and it has as many points as can be seen."""

from __future__ import annotations

from operator import itemgetter

from hypothesis import given
from hypothesis import strategies as st

from tiercel.broker.dashboard.curve import decimated

points = st.lists(
    st.tuples(st.floats(0, 1e6, allow_nan=False), st.floats(-1e3, 1e3, allow_nan=False)), max_size=200
).map(sorted)


@given(points, st.integers(1, 40))
def test_what_is_drawn_is_of_the_curve_in_its_order_and_has_its_extremes(
    curve: list[tuple[float, float]], width: int
) -> None:
    drawn = decimated(curve, width, itemgetter(0), itemgetter(1))
    assert len(drawn) <= 2 * width
    rest = iter(curve)
    assert all(point in rest for point in drawn)
    values = [value for _, value in curve]
    if curve and curve[0][0] < curve[-1][0]:
        assert {min(values), max(values)} <= {value for _, value in drawn}
