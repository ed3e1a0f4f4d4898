"""What a scripted broker does with the files that runs leave behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc import aio

from tiercel.v1 import nodes_pb2, nodes_pb2_grpc


class TakesFiles(nodes_pb2_grpc.NodesServiceServicer):
    """Takes all that it is offered, unless a test says otherwise.

    Attributes:
        files: What came, by run and by path.
        refuses_files: Why it takes nothing; empty if it does.
        full_disks: How often it finds its disk full before it has room.
        leaves_out: What it does not take, by path, with the reason.
        holds_files: Whether it hears an offer and then says nothing.
        held_files: How many such there were.
    """

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.refuses_files = ""
        self.leaves_out: dict[str, str] = {}
        self.full_disks = 0
        self.holds_files = False
        self.held_files = 0

    async def SendFiles(  # noqa: N802 - the contract's name
        self,
        request_iterator: AsyncIterator[nodes_pb2.SendFilesRequest],
        context: aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[nodes_pb2.SendFilesResponse]:
        """Take in the files of a run."""
        requests = aiter(request_iterator)
        header = (await anext(requests)).header
        if self.holds_files:
            self.held_files += 1
            await asyncio.Event().wait()
        if self.refuses_files:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.refuses_files)
        if self.full_disks:
            self.full_disks -= 1
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no space left")
        offered = [file for file in header.files if file.path not in self.leaves_out]
        sizes = {file.sha256: file.size_bytes for file in offered}
        yield nodes_pb2.SendFilesResponse(wanted=sizes, left_out=self.leaves_out)
        data = b"".join([request.data async for request in requests])
        contents = dict[str, bytes]()
        for sha256, size in sizes.items():
            contents[sha256], data = data[:size], data[size:]
        self.files[header.run_id] = {file.path: contents[file.sha256] for file in offered}
        yield nodes_pb2.SendFilesResponse()
