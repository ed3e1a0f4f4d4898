"""Which connections at a door go, for those that others need."""

from __future__ import annotations

import itertools
import socket
from pathlib import Path

import pytest

from tiercel.broker.api import strangers as module
from tiercel.broker.api.strangers import RoomKeeper, Seen, Strangers

MOST = 16
NUMBERS = itertools.count(1)


def seen(host: str, count: int, port: int = 7443) -> list[Seen]:
    numbers = [next(NUMBERS) for _ in range(count)]
    return [Seen(number, f"socket:[{number}]", port, host, f"{host}:{number}") for number in numbers]


def test_while_there_is_room_nobody_goes() -> None:
    strangers = Strangers(MOST)
    assert strangers.whom_to_close(seen("10.0.0.1", 11)) == []
    assert strangers.is_quiet(seen("10.0.0.1", 3))
    assert not strangers.is_quiet(seen("10.0.0.1", 4))


def test_those_of_the_address_with_most_go_first_the_oldest_before_the_others() -> None:
    few, many = seen("10.0.0.1", 2), seen("10.0.0.9", 10)
    assert Strangers(MOST).whom_to_close([*few, *many]) == many[:4]


def test_addresses_that_have_as_many_lose_as_many() -> None:
    gone = Strangers(MOST).whom_to_close([*seen("10.0.0.1", 8), *seen("10.0.0.2", 8)])
    assert sorted(each.host for each in gone) == ["10.0.0.1"] * 4 + ["10.0.0.2"] * 4


def test_who_has_shown_who_it_is_stays_even_where_nobody_else_is_left() -> None:
    strangers, known = Strangers(MOST), seen("10.0.0.1", 14)
    for each in known:
        strangers.know(f"ipv4:{each.peer}")
    unknown = seen("10.0.0.2", 2)
    assert strangers.whom_to_close([*known, *unknown]) == unknown


def test_a_connection_that_is_gone_vouches_for_nobody_who_comes_from_the_same_port_later() -> None:
    strangers, (one,) = Strangers(4), seen("10.0.0.1", 1)
    strangers.know(f"ipv4:{one.peer}")
    assert strangers.whom_to_close([]) == []
    assert one in strangers.whom_to_close([one, *seen("10.0.0.1", 3)])


def test_each_door_is_looked_at_by_itself() -> None:
    strangers = Strangers(MOST)
    assert strangers.whom_to_close([*seen("10.0.0.1", 11), *seen("10.0.0.1", 11, port=7444)]) == []
    assert len(strangers.whom_to_close([*seen("10.0.0.1", 11), *seen("10.0.0.1", 12, port=7444)])) == 4


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_only_connections_at_the_doors_are_looked_at_and_nothing_stays_open_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as door,
        socket.create_connection(door.getsockname()) as caller,
        (tmp_path / "file").open("w") as file,
        socket.socket(socket.AF_UNIX),
    ):
        accepted, peer = door.accept()
        with accepted:
            keeper = RoomKeeper([door.getsockname()[1]], Strangers(MOST))
            before = descriptors()
            (found,) = keeper._look()
            assert (found.descriptor, found.host, found.peer) == (
                accepted.fileno(),
                "127.0.0.1",
                f"127.0.0.1:{peer[1]}",
            )
            # The number has become another one's: that one is left alone.
            module._close(Seen(accepted.fileno(), "socket:[1]"))
            module._close(Seen(file.fileno(), "socket:[1]"))
            caller.sendall(b"x")
            assert accepted.recv(1) == b"x"
            module._close(found)
            assert caller.recv(1) == b""
            assert descriptors() == before

            def nothing_left(path: str) -> list[str]:
                raise OSError(24, "Too many open files", path)

            monkeypatch.setattr("os.listdir", nothing_left)
            assert keeper._look() == []
