"""What the broker shows at its encrypted doors: its own authority's certificates, or the operator's.

gRPC asks at each handshake, on a thread of its own: certificates change without a restart.
"""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import grpc

from tiercel.core.errors import InvalidSpecError, wrong_field
from tiercel.core.trust.certificates import CertificateError, Identity, is_due, pin_of, read_chain, to_pem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Protocol

    from tiercel.broker.trust.kept_authority import KeptAuthority

    class Shown(Protocol):
        """Who a door says that it is."""

        @property
        def pin(self) -> str:
            """Stands for the key of the authority that vouches for it, at this moment."""

        def current(self) -> Identity:
            """The key and the certificates of this moment; called on any thread."""


logger = logging.getLogger(__name__)


class OwnIdentity:
    """Certificates by the broker's own authority, issued anew before they run out and when that is another one.

    Args:
        names: Addresses and names by which the broker is called.
    """

    def __init__(self, kept: KeptAuthority, names: Sequence[str], now: Callable[[], float]) -> None:
        self._kept = kept
        self._names = tuple(names)
        self._now = now
        self._changing = threading.Lock()
        self._authority = kept.current
        self._identity = self._issue()

    @property
    def pin(self) -> str:
        """Stands for the authority's key."""
        return self._kept.current.pin

    def current(self) -> Identity:
        """The one of this moment."""
        with self._changing:
            authority = self._kept.current
            if authority is not self._authority or is_due(self._identity.certificate, self._time()):
                self._authority = authority
                self._identity = self._issue()
            return self._identity

    def _issue(self) -> Identity:
        return self._authority.issue_to_broker(self._names, self._time(), self._kept.life)

    def _time(self) -> datetime:
        return datetime.fromtimestamp(self._now(), UTC)


class OperatorsIdentity:
    """Certificates that the operator brings, read again whenever the files change.

    Args:
        certificate: File with the certificate and those between it and the authority, PEM.
        key: File with the private key, PEM.
        authority: File with the certificate of the authority, PEM.

    Raises:
        InvalidSpecError: They cannot be used.
    """

    def __init__(self, certificate: Path, key: Path, authority: Path) -> None:
        self._files = (certificate, key, authority)
        self._changing = threading.Lock()
        self._seen = self._stamps()
        self._identity = self._read()

    @property
    def pin(self) -> str:
        """Stands for the authority's key."""
        return pin_of(read_chain(self._identity.chain)[-1])

    def current(self) -> Identity:
        """The one of this moment; an earlier one while the files are of no use."""
        with self._changing:
            stamps = self._stamps()
            if stamps != self._seen:
                self._seen = stamps
                try:
                    self._identity = self._read()
                except InvalidSpecError as error:
                    logger.warning("%s; the certificate of before is shown on", error.message)
            return self._identity

    def _stamps(self) -> tuple[tuple[int, int], ...]:
        return tuple(_stamp(file) for file in self._files)

    def _read(self) -> Identity:
        certificate, key, authority = self._files
        try:
            chain = [*read_chain(certificate.read_bytes()), read_chain(authority.read_bytes())[0]]
            identity = Identity(key.read_bytes(), to_pem(*chain))
            _check_pair(identity)
        except (OSError, CertificateError) as error:
            raise wrong_field(
                "tls_certificate",
                f"{certificate}, {key} and {authority} are of no use ({error}); give a certificate, "
                "its key and its authority's certificate, PEM",
            ) from error
        return identity


def _check_pair(identity: Identity) -> None:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        found = load_pem_private_key(identity.key, None).public_key()
    except (ValueError, TypeError) as error:
        raise CertificateError(f"there is no private key in it ({error})") from error
    if found != identity.certificate.public_key():
        raise CertificateError("the key is not the certificate's")


def _stamp(file: Path) -> tuple[int, int]:
    try:
        found = file.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_ino


def server_credentials(shown: Shown, members_of: KeptAuthority | None = None) -> grpc.ServerCredentials:
    """What a listener needs for TLS.

    Args:
        shown: Who the listener says that it is; asked at each handshake.
        members_of: Only who has a certificate by this authority, or the one before it while that is believed, gets
            through the handshake; asked at each. None for everybody.
    """

    def now() -> tuple[Identity, bytes | None]:
        return shown.current(), to_pem(*members_of.current.roots) if members_of is not None else None

    last = now()

    def configuration() -> grpc.ServerCertificateConfiguration:
        identity, roots = last
        return grpc.ssl_server_certificate_configuration([(identity.key, identity.chain)], roots)

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        nonlocal last
        found = now()
        if found[0] is last[0] and found[1] == last[1]:
            return None
        last = found
        return configuration()

    # None stands for "as before", which the types that are published leave out.
    return grpc.dynamic_ssl_server_credentials(configuration(), fetch, members_of is not None)  # type: ignore[arg-type]
