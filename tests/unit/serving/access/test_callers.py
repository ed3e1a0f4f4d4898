"""Who is at the other end: what counts by TLS counts only there."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tiercel.serving.access.callers import Caller, caller_of

CERTIFICATE = {"subjectAltName": (("DNS", "x"), ("URI", "spiffe://tiercel.internal/tenant/one"))}


class Transport:
    def __init__(self, **known: object) -> None:
        self._known = known

    def get_extra_info(self, name: str) -> object:
        return self._known.get(name)


def found(**known: object) -> Caller:
    return caller_of(cast("Any", Transport(**known)))


def test_in_the_clear_the_address_counts() -> None:
    assert found(peername=("127.0.0.1", 5)) == Caller("127.0.0.1", is_local=True)
    assert found(peername=("127.0.0.1", 5), peercert=CERTIFICATE) == Caller("127.0.0.1", is_local=True)
    assert found(peername=("::1", 5, 0, 0)).is_local
    for address in (("10.0.0.1", 5), ("", 5), "", None, ()):
        assert not found(peername=address).is_local


def test_by_tls_the_certificate_counts_and_nobody_is_local() -> None:
    assert found(peername=("127.0.0.1", 5), sslcontext=object(), peercert=CERTIFICATE) == Caller(
        "127.0.0.1", tenant="one"
    )
    for nobody in (None, {}, {"subjectAltName": (("DNS", "spiffe://tiercel.internal/tenant/one"),)}):
        assert found(peername=("127.0.0.1", 5), sslcontext=object(), peercert=nobody) == Caller("127.0.0.1")


@pytest.mark.parametrize(
    "names",
    [
        ["spiffe://tiercel.internal/node/n1"],
        ["spiffe://tiercel.internal/tenant/"],
        ["spiffe://tiercel.internal/tenant/a/b"],
        ["spiffe://tiercel.internal/tenant/one", "spiffe://tiercel.internal/tenant/two"],
        ["spiffe://elsewhere/tenant/one"],
    ],
)
def test_a_certificate_of_somebody_else_names_no_tenant(names: list[str]) -> None:
    certificate = {"subjectAltName": tuple(("URI", name) for name in names)}
    assert found(peername=("10.0.0.1", 5), sslcontext=object(), peercert=certificate).tenant == ""
