"""Keeps HAProxy's file as the broker's table has it, and the one that runs as the file says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tiercel.broker.cli.proxy.configuration import AUTHORITY, configuration, identity_file, shape_of
from tiercel.core.errors import TiercelError, UnavailableError
from tiercel.core.private_files import write_private
from tiercel.core.trust.certificates import CertificateError, Identity, authorities_in, read_chain, renewal_time, to_pem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from tiercel.broker.cli.proxy.configuration import Configuration, Front
    from tiercel.broker.cli.proxy.haproxy import Haproxy
    from tiercel.core.routes import Routes

FILE = "haproxy.cfg"
_CANDIDATE = "candidate.cfg"


@dataclass(frozen=True, slots=True)
class Source:
    """What the broker is asked in the name of one tenant."""

    list_routes: Callable[[], Awaitable[Routes]]  # where the tenant's endpoints answer
    certify: Callable[[], Awaitable[Identity]]  # a certificate, by which nodes elsewhere are asked


class Keeper:
    """Writes the file, and has it taken.

    Args:
        haproxy: The one that runs, or may.
        sources: Ask the broker, by the names of tenants.
    """

    def __init__(self, front: Front, haproxy: Haproxy, sources: Mapping[str, Source]) -> None:
        self._front = front
        self._haproxy = haproxy
        self._sources = sources
        # A change that was written and not taken, by a HAProxy that was just starting or is at fault.
        self._owes_reload = False

    @property
    def file(self) -> Path:
        """What HAProxy is started with."""
        return self._front.folder / FILE

    async def watch(self, seconds: float, tell: Callable[[str], None]) -> None:
        """Keep it up to date for ever; what goes wrong is told once, and what was before stays.

        Args:
            seconds: Between two looks.
            tell: Says what was done, or what is wrong.
        """
        said = ""
        while True:
            try:
                done = await self.renew()
            except TiercelError as error:
                if error.message != said:
                    tell(f"{error.message} What was before stays.")
                said = error.message
            else:
                said = ""
                if done:
                    tell(done)
            await asyncio.sleep(seconds)

    async def renew(self) -> str:
        """Bring all of it up to date; returns what was done, empty for nothing.

        Raises:
            TiercelError: The broker does not say, HAProxy refuses it, or the folder is of no use.
        """
        tables = {tenant: await source.list_routes() for tenant, source in self._sources.items()}
        wanted = configuration(tables, self._front)
        try:
            has_new_identity = any([await self._renew_identity(tenant) for tenant in sorted(wanted.identities)])
            before = self.file.read_text(encoding="utf-8") if self.file.exists() else ""
            if wanted.text != before:
                await self._put(wanted)
        except OSError as error:
            folder = self._front.folder
            raise UnavailableError(f"{folder} cannot be written ({error}); make room, or choose another") from error
        self._owes_reload |= has_new_identity or shape_of(wanted.text) != shape_of(before)
        if wanted.text == before and not self._owes_reload:
            return ""
        if not await self._haproxy.is_running():
            self._owes_reload = False  # whoever starts it now reads the new file
            return f"{self.file} is written; start it: {self._haproxy.start_command(self.file)}"
        if not self._owes_reload and await self._haproxy.set_weights(wanted.weights):
            return "weights have changed, HAProxy goes on with them"
        self._owes_reload = True
        await self._haproxy.reload(wanted.backends)
        self._owes_reload = False
        return f"{self.file} has changed, HAProxy has read it"

    async def _put(self, wanted: Configuration) -> None:
        """Put a file in place that HAProxy would take."""
        candidate = self._front.folder / _CANDIDATE
        write_private(candidate, wanted.text.encode())
        await self._haproxy.check(candidate)
        candidate.replace(self.file)

    async def _renew_identity(self, tenant: str) -> bool:
        """See to a tenant's certificate that is good for a while; whether there is another one now."""
        identity, authority = self._front.folder / identity_file(tenant), self._front.folder / AUTHORITY
        try:
            kept = Identity.from_file(identity.read_bytes())
            if authority.exists() and datetime.now(UTC) < renewal_time(kept.certificate):
                return False
        except (FileNotFoundError, CertificateError):
            pass
        fresh = await self._sources[tenant].certify()
        write_private(authority, to_pem(*authorities_in(read_chain(fresh.chain))))
        write_private(identity, fresh.to_file())
        return True
