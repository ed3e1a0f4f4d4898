"""The broker's authority on the disk: one file, so that each step of its rotation is there whole or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from tiercel.broker.trust.authority import CERTIFICATE_LIFE, Authority
from tiercel.core.errors import wrong_field
from tiercel.core.private_files import write_private
from tiercel.core.trust.certificates import CertificateError, to_pem

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from pathlib import Path

KEY_FILE = "authority.key"
CERTIFICATE_FILE = "authority.pem"


class KeptAuthority:
    """The authority of this moment. Others ask for it anew whenever they need it, on any thread.

    Attributes:
        current: The one of this moment.
        life: How long the certificates of the broker and its nodes are good for.
    """

    def __init__(self, state_dir: Path, authority: Authority, life: timedelta = CERTIFICATE_LIFE) -> None:
        self._state_dir = state_dir
        self.life = life
        self.current = authority

    @classmethod
    def open(cls, state_dir: Path, now: datetime, life: timedelta = CERTIFICATE_LIFE) -> Self:
        """Read the authority of a state directory, or make it.

        Args:
            state_dir: The broker's; exists.
            now: The time.
            life: How long the certificates of the broker and its nodes are to be good for.

        Raises:
            InvalidSpecError: It cannot be read or written, or is damaged.
        """
        key = state_dir / KEY_FILE
        try:
            if not key.exists():
                write_private(key, Authority.create(now).to_file())
            if key.stat().st_mode & 0o077:
                key.chmod(0o600)
            authority = Authority.from_file(key.read_bytes())
            write_private(state_dir / CERTIFICATE_FILE, to_pem(*authority.roots))
        except (OSError, CertificateError) as error:
            raise wrong_field(
                "listen",
                f"the broker's authority in {key} cannot be used ({error}); put it back from a copy, or remove it, "
                "and all nodes have to join again",
            ) from error
        return cls(state_dir, authority, life)

    def replace(self, authority: Authority) -> None:
        """Put another one in this one's place; blocks.

        Raises:
            OSError: It cannot be written; the one of before stays.
        """
        # What clients may be given goes first: who believes that loses nothing where the next step fails.
        write_private(self._state_dir / CERTIFICATE_FILE, to_pem(*authority.roots))
        write_private(self._state_dir / KEY_FILE, authority.to_file())
        self.current = authority
