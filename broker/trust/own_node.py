"""What the node beside the broker shows to those who ask its models: certificates by the broker's own authority.

The broker writes them to a file, since both are on one machine; the inference server reads that whenever it changes.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidSignature

from tiercel.core.errors import wrong_field
from tiercel.core.private_files import write_private
from tiercel.core.trust.certificates import (
    CertificateError,
    Identity,
    key_to_pem,
    make_key,
    node_of,
    renewal_time,
    to_pem,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tiercel.broker.trust.authority import Authority

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 600.0


class OwnNode:
    """Keeps the files of the node beside the broker: its key with its certificates, and the authority's certificate.

    Args:
        authority: Signs.
        node_id: The node's name.
        identity: File for the key and the certificates, 0600.
        authority_file: File for the certificate of the authority, which vouches for those who ask.
        now: Seconds since the Unix epoch.
    """

    def __init__(
        self, authority: Authority, node_id: str, identity: Path, authority_file: Path, now: Callable[[], float]
    ) -> None:
        self._authority = authority
        self._node_id = node_id
        self._identity = identity
        self._authority_file = authority_file
        self._now = now

    def write(self) -> None:
        """Put what is missing, due, or of another name or authority in place.

        Raises:
            InvalidSpecError: The node's name cannot stand in a certificate.
            OSError: A file cannot be written.
        """
        now = datetime.fromtimestamp(self._now(), UTC)
        if self._is_good(now):
            return
        key = make_key()
        try:
            certificate = self._authority.issue_to_node(self._node_id, key.public_key(), now)
        except CertificateError as error:
            raise wrong_field("node_id", f"{error}; or take no requests from elsewhere: --advertise none") from error
        self._identity.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(self._authority_file, to_pem(self._authority.certificate))
        write_private(
            self._identity, Identity(key_to_pem(key), to_pem(certificate, self._authority.certificate)).to_file()
        )
        logger.info("node %s has a new certificate, good until %s", self._node_id, certificate.not_valid_after_utc)

    async def keep_fresh(self) -> None:
        """Renew them, for ever."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await asyncio.to_thread(self.write)
            except OSError as error:  # a full disk passes, and there are ten days left
                logger.warning("the certificate of node %s cannot be renewed now: %s", self._node_id, error)

    def _is_good(self, now: datetime) -> bool:
        try:
            found = Identity.from_file(self._identity.read_bytes()).certificate
            found.verify_directly_issued_by(self._authority.certificate)
            is_private = not self._identity.stat().st_mode & 0o077
            same = self._authority_file.read_bytes() == to_pem(self._authority.certificate)
        except (OSError, CertificateError, InvalidSignature, ValueError, TypeError):
            return False
        return is_private and same and node_of(found) == self._node_id and now < renewal_time(found)
