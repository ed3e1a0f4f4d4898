"""What one address may, and what is only counted."""

from __future__ import annotations

from tiercel.broker.access.peers import MOST_PEERS, OTHERS, Peers


def test_ten_a_second_and_a_thousand_an_hour_and_the_rest_is_counted() -> None:
    peers = Peers()
    taken = sum(peers.try_take("a", 100.0 + number / 1000) for number in range(1000))
    assert 18 <= taken <= 20
    assert peers.take_counted() == {"a": 1000 - taken}
    assert peers.take_counted() == {}
    assert peers.try_take("b", 101.0), "others are not held back"
    hour = sum(peers.try_take("c", 1000.0 + number / 10) for number in range(36_000))
    assert 1_900 < hour < 2_100, "a thousand at once and a thousand more over the hour"


def test_addresses_beyond_a_bound_are_counted_together() -> None:
    peers = Peers()
    for number in range(3 * MOST_PEERS):
        peers.try_take("first" if number < 20 else f"p{number}", 1.0)
    assert len(peers._peers) <= MOST_PEERS + 2
    assert sum(peers.take_counted().values()) == 10
    assert OTHERS in peers._peers
