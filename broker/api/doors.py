"""All the broker's listeners: for tenants, for agents here, and with encryption for those elsewhere."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tiercel.broker.access.rates import CallRates
from tiercel.broker.api import listeners
from tiercel.broker.api.gate import MembersGate, NodesGate, TenantsGate
from tiercel.broker.api.matrix import Matrix
from tiercel.broker.api.methods import Calls, Methods
from tiercel.broker.api.recording import Recorder
from tiercel.broker.api.strangers import RoomKeeper, Strangers
from tiercel.core.addresses import join_address, reached_here
from tiercel.core.trust.versions import require_tls13_only

if TYPE_CHECKING:
    import grpc

    from tiercel.broker.access.audit import Audit
    from tiercel.broker.access.people.people import People
    from tiercel.broker.settings import BrokerSettings
    from tiercel.broker.tenancy import Tenancy
    from tiercel.broker.trust.encryption import Encryption
    from tiercel.broker.trust.membership import Membership

STOP_GRACE_SECONDS = 1.0


class Doors:
    """Listens, once it is told to.

    Args:
        encryption: What the encrypted ones need; None for none of them.
        membership: Whose certificates count; None without encryption.
        people: Knows those who signed in at a provider; None where nobody does.

    Attributes:
        tenants: For tenants, in the clear on this machine and encrypted elsewhere.
        methods: Of the tenants' door.
        calls: Calls them from inside, through the same gate.
        nodes: For agents on this machine.
        members: For agents that have joined; None without encryption.
        addresses: Where things listen, by the keys of ``addresses.json``.
        strangers: Which connections at the encrypted ones have not shown who they are.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        tenancy: Tenancy,
        encryption: Encryption | None,
        membership: Membership | None,
        audit: Audit,
        people: People | None = None,
    ) -> None:
        self._settings = settings
        self._encryption = encryption
        matrix, recorder = Matrix.read(), Recorder(audit)
        self.strangers = Strangers(min(listeners.TENANTS.connections, listeners.NODES.connections))
        rates = CallRates(settings.calls_per_second)
        gate = TenantsGate(tenancy, matrix, recorder, self.strangers, rates, people)
        self.tenants = listeners.make_server(listeners.TENANTS, gate)
        self.methods = Methods(self.tenants)
        self.calls = Calls(gate, self.methods)
        self.nodes = listeners.make_server(listeners.NODES, NodesGate(tenancy, matrix, recorder))
        self.members: grpc.aio.Server | None = None
        if membership is not None:
            self.members = listeners.make_server(
                listeners.NODES, MembersGate(membership, matrix, recorder, self.strangers)
            )
        self.addresses: dict[str, str] = {}
        self._encrypted_ports: list[int] = []

    @property
    def nodes_port(self) -> int:
        """Where agents that have joined connect; 0 for nowhere."""
        return self._encrypted_ports[1] if self._encrypted_ports else 0

    def bind(self) -> None:
        """Take the ports.

        Raises:
            UnavailableError: One is in use.
        """
        settings, host = self._settings, self._settings.host
        self.addresses = {
            "broker": join_address(host, listeners.bind(self.tenants, host, settings.broker_port, "--broker-port")),
            "nodes": join_address(host, listeners.bind(self.nodes, host, settings.nodes_port, "--nodes-port")),
        }
        if self._encryption is None or self.members is None:
            return
        wide, needs = settings.listen, self._encryption
        self._encrypted_ports = [
            listeners.bind(self.tenants, wide, settings.listen_port, "--listen-port", needs.tenants),
            listeners.bind(self.members, wide, settings.listen_nodes_port, "--listen-nodes-port", needs.nodes),
        ]
        broker_tls, nodes_tls = (join_address(needs.host, port) for port in self._encrypted_ports)
        self.addresses |= {"broker_tls": broker_tls, "nodes_tls": nodes_tls}

    async def start(self) -> None:
        """Listen.

        Raises:
            UnavailableError: An encrypted one would take TLS 1.2.
        """
        for server in self._servers():
            await server.start()
        reached = reached_here(self._settings.listen)
        for port in self._encrypted_ports:
            await asyncio.to_thread(require_tls13_only, reached, port)

    async def keep_room(self) -> None:
        """Let strangers keep nobody out of the encrypted ones, for ever."""
        if self._encrypted_ports:
            await RoomKeeper(self._encrypted_ports, self.strangers).keep_room()
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """Listen no more; calls under way get a moment. May be called again."""
        for server in reversed(self._servers()):
            await server.stop(STOP_GRACE_SECONDS)

    def _servers(self) -> list[grpc.aio.Server]:
        return [server for server in (self.tenants, self.nodes, self.members) if server is not None]
