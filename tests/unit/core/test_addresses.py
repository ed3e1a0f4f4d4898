"""Addresses as text: what is one, and what goes in comes out."""

from __future__ import annotations

import pytest

from tiercel.core.addresses import (
    caller_at,
    join_address,
    network_of,
    port_in,
    reached_here,
    require_host,
    split_address,
)
from tiercel.core.errors import InvalidSpecError


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("10.0.0.5", "10.0.0.5:7443"),
        ("lab.example", "lab.example:7443"),
        ("::1", "[::1]:7443"),
        ("fd00::2", "[fd00::2]:7443"),
        ("fe80::1%eth0", "[fe80::1%eth0]:7443"),
    ],
)
def test_what_is_written_is_read(host: str, text: str) -> None:
    assert join_address(host, 7443) == text
    assert split_address(text) == (host, 7443)
    assert port_in(text) == 7443


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fd00::2:7443", "without brackets; write"),
        ("::1", "without brackets"),
        ("[fd00::2]", "not HOST:PORT|without brackets"),
        ("[lab.example]:7443", "not permitted|IPv6|At least 3 parts|Expected"),
        ("10.0.0.5", "not HOST:PORT"),
        ("10.0.0.5:", "not HOST:PORT"),
        (":7443", "not HOST:PORT"),
        ("10.0.0.5:65536", "not HOST:PORT"),
        ("10.0.0.5:-1", "not HOST:PORT"),
        ("10.0.0.5:\u0667", "not HOST:PORT"),
        ("", "not HOST:PORT"),
    ],
)
def test_what_is_no_address_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        split_address(text)
    assert port_in(text) == 0


@pytest.mark.parametrize("text", ["10.0.0.5", "fd00::2", "lab.example", "127.0.0.2"])
def test_a_host_alone_is_one(text: str) -> None:
    assert require_host("advertise", text) == text


@pytest.mark.parametrize("text", ["[fd00::2]", "10.0.0.5:80", "::", "0.0.0.0", "fe80::1", "fe80::1%eth0", "a b", ""])
def test_what_nobody_else_could_dial_is_refused_with_what_to_give(text: str) -> None:
    with pytest.raises(InvalidSpecError, match=r"advertise: .*without brackets and port"):
        require_host("advertise", text)


def test_who_calls_by_what_grpc_says() -> None:
    assert caller_at("ipv4:127.0.0.1:4242") == "127.0.0.1:4242"
    assert caller_at("ipv6:%5Bfd00::2%5D:4242") == "[fd00::2]:4242"
    assert caller_at("ipv6:%5Bfe80::1%252%5D:4242") == "[fe80::1]:4242"
    assert caller_at("unix:") == "unix:"


def test_one_customer_is_one_however_many_addresses_that_has() -> None:
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1") != network_of("2001:db8:0:1::1")
    assert network_of("::ffff:10.0.0.5") == network_of("10.0.0.5") != network_of("10.0.0.6")
    assert network_of("::1") == "::1"
    assert network_of("nobody") == "nobody"


def test_what_listens_everywhere_is_reached_on_its_own_machine() -> None:
    assert [reached_here(each) for each in ("0.0.0.0", "::", "10.0.0.5")] == ["127.0.0.1", "::1", "10.0.0.5"]
