"""What the node beside the broker shows to those who ask its models: certificates by the broker's own authority.

The broker writes them to a file, since both are on one machine; the inference server reads that whenever it changes.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tiercel.broker.trust.authority import names_of_node
from tiercel.core.complaints import Complaint
from tiercel.core.errors import wrong_field
from tiercel.core.private_files import write_private
from tiercel.core.trust.certificates import (
    CertificateError,
    Identity,
    is_due,
    is_issued_by,
    key_to_pem,
    look_seconds,
    make_key,
    names_in,
    to_pem,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tiercel.broker.trust.authority import Authority
    from tiercel.broker.trust.kept_authority import KeptAuthority

logger = logging.getLogger(__name__)

# Whether the authority is another one is seen at a glance, of which there are many between two looks at the files.
_GLANCE_SECONDS = 1.0
_LOOK_SECONDS = 600.0


class OwnNode:
    """Keeps the files of the node beside the broker: its key with its certificates, and those of who is believed.

    Args:
        names: Names and addresses by which others ask its models, beside the name that it always has.
        identity: File for the key and the certificates, 0600.
        authority_file: File for the certificates of the authorities that vouch for those who ask.
        now: Seconds since the Unix epoch.
    """

    def __init__(
        self,
        kept: KeptAuthority,
        node_id: str,
        names: Sequence[str],
        identity: Path,
        authority_file: Path,
        now: Callable[[], float],
    ) -> None:
        self._kept = kept
        self._node_id = node_id
        self._names = tuple(names)
        self._identity = identity
        self._authority_file = authority_file
        self._now = now

    def write(self) -> None:
        """Put what is missing, due, or of another name or authority in place.

        Raises:
            InvalidSpecError: The node's name cannot stand in a certificate.
            OSError: A file cannot be written.
        """
        now, authority = datetime.fromtimestamp(self._now(), UTC), self._kept.current
        if self._is_good(authority, now):
            return
        key = make_key()
        try:
            certificate = authority.issue_to_node(self._node_id, key.public_key(), now, self._names, self._kept.life)
        except CertificateError as error:
            raise wrong_field("node_id", f"{error}; or take no requests from elsewhere: --advertise none") from error
        self._identity.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(self._authority_file, to_pem(*authority.roots))
        write_private(self._identity, Identity(key_to_pem(key), authority.chain_of(certificate)).to_file())
        logger.info("node %s has a new certificate, good until %s", self._node_id, certificate.not_valid_after_utc)

    async def keep_fresh(self) -> None:
        """Renew them when they are due or the authority is another one, for ever."""
        glances = max(1, int(look_seconds(self._kept.life, _LOOK_SECONDS) / _GLANCE_SECONDS))
        complaint = Complaint(logger, f"the certificate of node {self._node_id} cannot be renewed now: %s")
        while True:
            authority = self._kept.current
            try:
                await asyncio.to_thread(self.write)
                complaint.note("")
            except OSError as error:  # a full disk passes, and there are ten days left
                complaint.note(str(error))
            for _ in range(glances):
                await asyncio.sleep(_GLANCE_SECONDS)
                if self._kept.current is not authority:
                    break

    def _is_good(self, authority: Authority, now: datetime) -> bool:
        try:
            kept = Identity.from_file(self._identity.read_bytes())
            found = kept.certificate
            is_private = not self._identity.stat().st_mode & 0o077
            same = self._authority_file.read_bytes() == to_pem(*authority.roots)
        except (OSError, CertificateError):
            return False
        is_led_to = kept.chain == authority.chain_of(found) and is_issued_by(found, authority.certificate)
        is_whose = names_in(found) == names_of_node(self._node_id, self._names)
        return is_private and same and is_led_to and is_whose and not is_due(found, now)
