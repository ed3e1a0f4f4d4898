from __future__ import annotations

import pytest

from tiercel.serving.connections.crowding import Activity, Doing, peer_of, whom_to_close

NOW = 100.0


def test_the_longest_idle_goes_first_and_what_is_in_use_stays() -> None:
    idle = [Activity("a", Doing.NOTHING, since) for since in (30.0, 10.0, 20.0)]
    busy = Activity("a", Doing.BUSY, 0.0)
    assert whom_to_close([busy, *idle], NOW) == [2]
    assert whom_to_close([busy], NOW) == []


def test_the_peer_with_the_most_connections_loses_them() -> None:
    of_many = [Activity("many", Doing.NOTHING, 90.0 + number) for number in range(3)]
    assert whom_to_close([Activity("one", Doing.NOTHING, 0.0), *of_many], NOW) == [1]


def test_a_request_that_does_not_get_on_is_no_reason_to_keep_others_out() -> None:
    begun = Activity("a", Doing.ARRIVING, NOW - 0.5)
    stuck = Activity("a", Doing.ARRIVING, NOW - 5.0)
    idle = Activity("a", Doing.NOTHING, NOW - 0.1)
    assert whom_to_close([begun, stuck], NOW) == [1]
    assert whom_to_close([begun, stuck, idle], NOW) == [2]


def test_one_look_at_many_makes_room_for_several() -> None:
    assert len(whom_to_close([Activity("a", Doing.NOTHING, 0.0)] * 1024, NOW)) == 16


@pytest.mark.parametrize(
    ("address", "peer"),
    [
        (("192.0.2.7", 5), "192.0.2.7"),
        (("2001:db8::1", 5, 0, 0), "2001:db8::/64"),
        (("2001:db8::ffff", 5, 0, 0), "2001:db8::/64"),
        (None, ""),
    ],
)
def test_peers(address: object, peer: str) -> None:
    assert peer_of(address) == peer
