"""What would happen if something were different."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.core.predictions import PredictionRecord
from tiercel.core.what_if import Changes, WhatIf
from tiercel.core.wire import from_proto, to_proto
from tiercel.v1 import what_if_pb2, what_if_pb2_grpc

if TYPE_CHECKING:
    from tiercel.broker.client.connection import Connection


async def what_if(connection: Connection, changes: Changes) -> WhatIf:
    """Ask the broker; nothing is changed.

    Args:
        connection: With a tenant's token, or an operator's.
        changes: What is different.

    Raises:
        TiercelError: What the broker answered, or that it does not answer.
    """
    stub = what_if_pb2_grpc.WhatIfServiceStub(connection.channel)
    request = what_if_pb2.AskWhatIfRequest(changes=to_proto(changes, what_if_pb2.Changes))
    response = await connection.call(stub.AskWhatIf, request)
    return from_proto(WhatIf, response)


async def predictions(connection: Connection, job_id: str = "", limit: int = 0) -> PredictionRecord:
    """What the broker predicted as things were, and what then came.

    Args:
        connection: With a tenant's token, or an operator's, who is told of all.
        job_id: Only those about this job.
        limit: At most so many predictions; 0 for 100.

    Raises:
        TiercelError: What the broker answered, or that it does not answer.
    """
    stub = what_if_pb2_grpc.WhatIfServiceStub(connection.channel)
    request = what_if_pb2.ListPredictionsRequest(job_id=job_id, limit=limit)
    response = await connection.call(stub.ListPredictions, request)
    return from_proto(PredictionRecord, response)
