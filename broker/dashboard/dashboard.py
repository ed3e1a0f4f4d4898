"""The dashboard as a whole: where it listens, who is signed in, and what is told to all who look."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tiercel.broker.access.sign_in import SignIn
from tiercel.broker.dashboard.accounts import Accounts
from tiercel.broker.dashboard.asking import Asking
from tiercel.broker.dashboard.histories import Histories
from tiercel.broker.dashboard.listener import Listener
from tiercel.broker.dashboard.reads import ClusterReads
from tiercel.broker.dashboard.site import Site
from tiercel.broker.dashboard.stream import Publisher
from tiercel.broker.dashboard.versions import Versions
from tiercel.broker.progress.door import Place
from tiercel.broker.store.audit import AuditStore
from tiercel.broker.store.history import History
from tiercel.broker.store.sessions import SessionStore
from tiercel.core.tasks import run_until_one_ends

if TYPE_CHECKING:
    from tiercel.broker.actors.clock import Clock
    from tiercel.broker.actors.registry import ActorRegistry
    from tiercel.broker.actors.service import BrokerService
    from tiercel.broker.api.methods import Calls
    from tiercel.broker.settings import BrokerSettings
    from tiercel.broker.store.logs import RunLogs
    from tiercel.broker.store.sealing import Sealer
    from tiercel.broker.store.sql import Store
    from tiercel.broker.tenancy import Tenancy
    from tiercel.broker.trust.encryption import Encryption

_LOOK_SECONDS = 0.5


class Dashboard:
    """Listens, once it is told to.

    Args:
        settings: Where.
        encryption: What it shows others; None where nobody else reaches it.
        tenancy: Who may ask.
        clock: The time.
        store: The database; opened by the time that this starts.
        sealer: Encrypts what is kept of who is signed in.

    Attributes:
        sign_in: Who is signed in.
        publisher: Is told what happens.
        site: What answers, once it has started.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        encryption: Encryption | None,
        tenancy: Tenancy,
        clock: Clock,
        store: Store,
        sealer: Sealer,
    ) -> None:
        places = [Place(settings.host, settings.dashboard_port, "--dashboard-port")]
        if encryption is not None:
            port, option = settings.listen_dashboard_port, "--listen-dashboard-port"
            places.append(Place(settings.listen, port, option, encryption.shown, encryption.host))
        self._names = encryption.names if encryption is not None else ()
        self._tenancy = tenancy
        self._clock = clock
        self._store = store
        self._listener = Listener(places)
        self._asking: Asking | None = None
        self.sign_in = SignIn(SessionStore(store), sealer, clock.now)
        self.publisher = Publisher(clock.alive)

    @property
    def addresses(self) -> dict[str, str]:
        """Where it listens, by the keys of ``addresses.json``."""
        return dict(zip(("dashboard", "dashboard_tls"), self._listener.addresses, strict=False))

    @property
    def urls(self) -> tuple[str, str]:
        """Where a browser on this machine finds it, and one elsewhere; empty for nowhere."""
        told = self.addresses
        return f"http://{told['dashboard']}", f"https://{told['dashboard_tls']}" if "dashboard_tls" in told else ""

    def bind(self) -> None:
        """Take the ports.

        Raises:
            UnavailableError: One is in use.
        """
        self._listener.bind()

    async def start(self, calls: Calls, service: BrokerService, registry: ActorRegistry, logs: RunLogs) -> None:
        """Answer.

        Args:
            calls: Carries out what is asked.
            service: What tenants ask of the broker.
            registry: The actors.
            logs: Output of runs.
        """
        await self.sign_in.start()
        self._reads = ClusterReads(service, registry)
        history = History(self._store)
        histories = Histories(service, registry, history, logs, self._tenancy, calls, self._clock)
        accounts = Accounts(AuditStore(self._store), service, registry, history, self._tenancy, self._clock)
        self._asking = Asking(service, registry, self._tenancy)
        self.site = Site(
            calls,
            self.sign_in,
            self._tenancy,
            self._reads,
            self.publisher,
            self._names,
            (*histories.routes(), *accounts.routes(), *self._asking.routes(), *Versions(calls).routes()),
        )
        await self._listener.start(self.site.app)

    async def run(self) -> None:
        """Look at what has changed, for ever; once it has started."""
        await run_until_one_ends(
            publisher=self.publisher.run(self._reads.lists, self._reads.job), listener=self._look_at_listener()
        )

    async def _look_at_listener(self) -> None:
        while True:
            self._listener.look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def stop(self) -> None:
        """Listen no more. May be called again."""
        self.publisher.close()
        await self._listener.stop()
        if self._asking is not None:
            await self._asking.close()
