"""TLS 1.3 and nothing older at gRPC's doors.

gRPC has no option for it. But its list of suites for TLS 1.2 can be one that no certificate fits, and those of 1.3 are
not in that list. It is read once a process, when gRPC is imported, and also binds the process' clients.
"""

from __future__ import annotations

import os
import socket
import ssl

from tiercel.core.errors import UnavailableError

_VARIABLE = "GRPC_SSL_CIPHER_SUITES"
# Needs a key that both sides were given beforehand, which nobody is.
_UNUSABLE_SUITE = "ECDHE-PSK-AES128-CBC-SHA"
_SECONDS = 5.0


def allow_only_tls13() -> None:
    """Import gRPC so that this process speaks TLS 1.3 alone; of no effect where it was imported before."""
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = _UNUSABLE_SUITE
    try:
        import grpc  # noqa: F401 - reads the variable
    finally:
        # Not for programs that this one starts.
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before


def require_tls13_only(host: str, port: int) -> None:
    """Make sure that a door of ours takes nothing older than TLS 1.3.

    Raises:
        UnavailableError: It does.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        with socket.create_connection((host, port), timeout=_SECONDS) as plain, context.wrap_socket(plain):
            pass
    except OSError:
        return
    raise UnavailableError(
        "listen: this process would take TLS 1.2, since gRPC was imported before "
        "tiercel.core.trust.versions.allow_only_tls13() was called; start the broker with 'tiercel up'",
        field="listen",
    )
