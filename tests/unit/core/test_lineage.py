from __future__ import annotations

from tiercel.core.lineage import thinned


def test_a_long_curve_keeps_its_ends() -> None:
    points = thinned(range(2_000), 200)
    assert (len(points), points[0], points[-1]) == (200, 0, 1_999)
    assert list(points) == sorted(set(points))
    assert thinned(range(7), 200) == tuple(range(7))
