from __future__ import annotations

import pytest

from tiercel.serving.rest.hosts import Hosts
from tiercel.serving.rest.messages import HttpRefusedError


@pytest.mark.parametrize(
    "host",
    [
        b"localhost",
        b"LocalHost:8000",
        b"127.0.0.1:8000",
        b"[::1]:8000",
        b"192.0.2.1",
        b"a.localhost",
        b"models.test:1",
        b"far.node.tiercel.internal:8443",
        b"models.test.",
    ],
)
def test_addresses_and_own_names_are_fine_time_and_again(host: bytes) -> None:
    hosts = Hosts(("models.test",))
    for _ in range(2):
        hosts.check({b"host": host})


@pytest.mark.parametrize(
    "host",
    [
        b"evil.test", b"localhost.evil.test", b"127.0.0.1.evil.test:80", b"[::1", b"[evil]:1", b"localhost:x",
        b"localhost, evil.test", b"localhost@evil.test", b"evil.test#localhost", b" ",
        b"node.tiercel.internal.evil.test",
    ],
)  # fmt: skip
def test_a_web_page_that_made_a_name_for_this_machine_is_refused_time_and_again(host: bytes) -> None:
    hosts = Hosts()
    for _ in range(2):
        with pytest.raises(HttpRefusedError, match="allowed-hosts"):
            hosts.check({b"host": host})


def test_who_wants_any_name_gets_it_and_what_is_remembered_is_bounded() -> None:
    hosts = Hosts(("*",))
    for number in range(2000):
        hosts.check({b"host": b"n%d" % number})
    assert len(hosts._known) <= 256


def test_a_request_without_a_name_is_no_browsers() -> None:
    Hosts().check({})
