"""The service for tenants about room on disks; see ``protos/tiercel/v1/disk.proto``. Also what nodes tell of theirs."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from tiercel.broker.api.auth import tenant_of
from tiercel.core.disk_use import MAX_NAME_CHARACTERS, MAX_PARTS, DiskUse, NodeDisk, RoomTaken
from tiercel.core.wire import to_proto
from tiercel.v1 import disk_pb2, disk_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tiercel.broker.actors.retention import Retention
    from tiercel.broker.actors.service import BrokerService
    from tiercel.broker.api.auth import Context
    from tiercel.broker.store.inventory import Inventory
    from tiercel.broker.tenancy import Tenancy
    from tiercel.v1 import nodes_pb2

_MAX_BYTES = 2**62


class DiskService(disk_pb2_grpc.DiskServiceServicer):
    """Translates tenants' calls.

    Args:
        tenancy: Who may call.
    """

    def __init__(self, service: BrokerService, inventory: Inventory, retention: Retention, tenancy: Tenancy) -> None:
        self._service = service
        self._inventory = inventory
        self._retention = retention
        self._tenancy = tenancy

    async def GetDiskUse(self, request: disk_pb2.GetDiskUseRequest, context: Context) -> disk_pb2.GetDiskUseResponse:
        """Say what takes room."""
        tenant = tenant_of(context, self._tenancy)
        own, broker = await self._inventory.of_tenant(tenant.name), await self._inventory.of_broker()
        return to_proto(DiskUse(own, broker, self._service.node_disks()), disk_pb2.GetDiskUseResponse)

    async def CollectGarbage(
        self, request: disk_pb2.CollectGarbageRequest, context: Context
    ) -> AsyncIterator[disk_pb2.CollectGarbageResponse]:
        """Remove what is kept no longer of the tenant's jobs, or say what would go."""
        tenant = tenant_of(context, self._tenancy)
        if request.dry_run:
            for removal in await self._retention.planned(tenant.name):
                yield disk_pb2.CollectGarbageResponse(removal=to_proto(removal, disk_pb2.Removal))
            return
        async with aclosing(self._retention.carry_out(tenant.name)) as removals:
            async for removal in removals:
                yield disk_pb2.CollectGarbageResponse(removal=to_proto(removal, disk_pb2.Removal))


def disk_of(node_id: str, beat: nodes_pb2.Heartbeat) -> NodeDisk | None:
    """What a node says of its disk, within bounds; None if it says nothing."""
    if not beat.HasField("disk"):
        return None
    parts = tuple(
        RoomTaken(part.name, min(part.size_bytes, _MAX_BYTES))
        for part in beat.disk.parts[:MAX_PARTS]
        if part.name.isprintable() and 0 < len(part.name) <= MAX_NAME_CHARACTERS
    )
    return NodeDisk(node_id, parts, min(beat.disk.free_bytes, _MAX_BYTES), min(beat.disk.total_bytes, _MAX_BYTES))
