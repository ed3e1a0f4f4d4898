from __future__ import annotations

from dataclasses import replace

import pytest

from tiercel.core.shares import AcceleratorShare, Share

HELD = AcceleratorShare("GPU-1", 0.5, 2**33)
SHARE = Share(0.5, 1.5, "because", (HELD,))


@pytest.mark.parametrize(
    "other",
    [
        None,
        replace(SHARE, cpu_weight=0.51),
        replace(SHARE, cpu_cap_cores=None),
        replace(SHARE, accelerators=()),
        replace(SHARE, accelerators=(HELD, replace(HELD, id="GPU-2"))),
        replace(SHARE, accelerators=(replace(HELD, id="GPU-2"),)),
        replace(SHARE, accelerators=(replace(HELD, fraction=0.51),)),
        replace(SHARE, accelerators=(replace(HELD, memory_bytes=2**34),)),
        replace(SHARE, accelerators=(replace(HELD, cap=0.4),)),
    ],
)
def test_what_grants_something_else_is_not_the_same(other: Share | None) -> None:
    assert not SHARE.same_limits(other)


def test_the_reason_makes_no_difference() -> None:
    assert SHARE.same_limits(replace(SHARE, reason="for another reason"))


def test_the_tolerance_is_for_fractions_and_not_for_devices() -> None:
    def near(**changes: object) -> bool:
        held = replace(HELD, **changes)  # type: ignore[arg-type]  # one field at a time, each of its own type
        return SHARE.same_limits(replace(SHARE, accelerators=(held,)), tolerance=0.02)

    assert near(fraction=0.51)
    assert not near(fraction=0.53)
    assert not near(memory_bytes=2**33 + 1)
    assert not near(id="GPU-2")
