"""Where tenants may have a node fetch data from."""

from __future__ import annotations

import pytest

from tiercel.trainer_agent.data.addresses import is_public
from tiercel.trainer_agent.data.sources import AllowedSources, check_prefix, file_name, shown
from tiercel.trainer_agent.errors import RunFailedError

SOURCES = AllowedSources(("file:///mnt/shared/", "http://store:9000/data", "s3://team"))


@pytest.mark.parametrize(
    ("url", "is_trusted"),
    [
        ("file:///mnt/shared/x", True),
        ("file:///mnt/shared", True),
        ("http://store:9000/data/x", True),
        ("http://STORE:9000/data/x", True),
        ("http://store:9000/database", False),
        ("http://store/data/x", False),
        ("https://store:9000/data/x", False),
        ("http://store:9000/data/../secret", False),
        ("http://store:9000/data/%2e%2e/secret", False),
        ("http://store.evil:9000/data/x", False),
        ("s3://team/x", True),
        ("s3://team2/x", False),
        ("https://host/x", False),
    ],
)
def test_what_is_below_a_prefix_is_trusted(url: str, is_trusted: bool) -> None:
    assert bool(SOURCES.check(url)) is is_trusted


@pytest.mark.parametrize("url", ["file:///mnt/shared/../x", "file:///mnt/shared2/x", "file:///etc/passwd", "ssh://h/x"])
def test_the_node_itself_is_closed_but_for_what_is_open(url: str) -> None:
    with pytest.raises(RunFailedError):
        SOURCES.check(url)


@pytest.mark.parametrize("prefix", ["", "x", "/mnt", "file://host/x", "ssh://host/", "file:///mnt/../x", "http:///x"])
def test_a_prefix_that_trusts_nothing_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="is no URL to trust"):
        check_prefix(prefix)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("1.1.1.1", True),
        ("2606:4700:4700::1111", True),
        ("127.0.0.1", False),
        ("0.0.0.0", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("ff02::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:169.254.169.254", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("2002:7f00:1::", False),
        ("2001:0:1:2:3:4:5:6", False),
    ],
)
def test_which_addresses_are_of_the_internet(address: str, public: bool) -> None:
    assert is_public(address) is public


def test_names_and_what_is_shown() -> None:
    assert file_name("https://host/a/x.npz?k=v") == "x.npz"
    assert file_name("https://host/a/%2e%2e%2fx") == "x"
    assert file_name("https://host/a/..") == "data"
    assert file_name("https://host/a/b%20c%00d.csv") == "b_c_d.csv"
    assert shown("https://host/x?X-Amz-Signature=secret#part") == "https://host/x?…"
    assert shown("https://host/x") == "https://host/x"
