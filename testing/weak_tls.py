"""Knocks at an encrypted door as those do who look for a weak one."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import warnings

_SECONDS = 10.0
_OLD = {
    "TLS 1.0": ssl.TLSVersion.TLSv1,
    "TLS 1.1": ssl.TLSVersion.TLSv1_1,
    "TLS 1.2": ssl.TLSVersion.TLSv1_2,
}
_GOOD = {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}


async def weaknesses_of(address: str) -> list[str]:
    """What a door agrees to and must not, in plain words; it has to agree to TLS 1.3.

    Args:
        address: Where it is, ``host:port``.
    """
    return await asyncio.to_thread(_weaknesses_of, address)


def _weaknesses_of(address: str) -> list[str]:
    found = []
    for name, version in _OLD.items():
        # Every suite that this OpenSSL has, those without encryption and without a certificate among them.
        for suites in ("ALL:COMPLEMENTOFALL:eNULL:@SECLEVEL=0", "aNULL:eNULL:@SECLEVEL=0", "kRSA:@SECLEVEL=0"):
            agreed = _suite_with(address, _context(version, suites))
            if agreed:
                found.append(f"{name} with {agreed} of {suites}")
    agreed = _suite_with(address, _context(ssl.TLSVersion.TLSv1_3, ""))
    if agreed not in _GOOD:
        found.append(f"TLS 1.3 with {agreed or 'nothing'}")
    if answered := _in_the_clear(address):
        found.append(f"in the clear: {answered!r}")
    return found


async def hears_strangers(address: str) -> bool:
    """Whether a door goes on with somebody who shows no certificate."""
    return await asyncio.to_thread(_hears_strangers, address)


def _hears_strangers(address: str) -> bool:
    context = _context(ssl.TLSVersion.TLSv1_3, "")
    context.set_alpn_protocols(["h2"])
    with contextlib.suppress(OSError), _open(address) as plain, context.wrap_socket(plain) as encrypted:
        # With TLS 1.3 a caller is told only after its own part that it is not wanted.
        encrypted.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
        return bool(encrypted.recv(1))
    return False


def _context(version: ssl.TLSVersion, suites: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old on purpose
        context.minimum_version = context.maximum_version = version
    if suites:
        context.set_ciphers(suites)
    return context


def _suite_with(address: str, context: ssl.SSLContext) -> str:
    with contextlib.suppress(OSError), _open(address) as plain, context.wrap_socket(plain) as encrypted:
        return (encrypted.cipher() or ("?",))[0]
    return ""


def _in_the_clear(address: str) -> bytes:
    with contextlib.suppress(OSError), _open(address) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answered = plain.recv(100)
        # A word of TLS that says no is none in the clear.
        return b"" if answered[:1] == b"\x15" else answered
    return b""


def _open(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), _SECONDS)


def is_open(silent: socket.socket) -> bool:
    """Whether the other side has not closed a connection that does not block, on which it says nothing."""
    try:
        return silent.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False
