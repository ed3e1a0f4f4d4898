"""An agent that lies about what is its own: every field of every message, at its extremes, thousands of times."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from testing.brokers import node_token, running_broker, tenant_of, tenant_token
from testing.scripted_agent import ScriptedAgent
from testing.until import until
from tiercel.v1 import jobs_pb2, nodes_pb2

KINDS = ("heartbeat", "run", "progress", "delivery", "log", "serving")
EXTREMES: dict[int, tuple[Any, ...]] = {
    FieldDescriptor.TYPE_DOUBLE: (math.nan, math.inf, -math.inf, -1.0, 0.0, 1e308, -1e308, 5e-324, 0.85, 2.0),
    FieldDescriptor.TYPE_UINT64: (0, 1, 2, 2**31, 2**53, 2**63, 2**64 - 1),
    FieldDescriptor.TYPE_INT64: (0, 1, -1, 2**62, -(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 1, 2**32 - 1),
    FieldDescriptor.TYPE_INT32: (0, -1, 1, 255, 2**31 - 1, -(2**31)),
    FieldDescriptor.TYPE_BOOL: (False, True),
    FieldDescriptor.TYPE_BYTES: (b"", b"\xff" * 100, b"x" * 70_000),
    FieldDescriptor.TYPE_STRING: ("", "x", "../../etc", "\x1b[2J\x00", "a" * 64, "é" * 5_000, "\n", "digits"),
}
MESSAGES = 4_000
PART = 200


class Liar:
    """Makes messages up.

    Args:
        seed: Of its lots.
        true: Names that mean something, which it uses where one may stand.
    """

    def __init__(self, seed: int, true: tuple[str, ...]) -> None:
        self._lots = random.Random(seed)
        self._true = true

    def message(self) -> nodes_pb2.ConnectRequest:
        """Any but a hello."""
        made = nodes_pb2.ConnectRequest()
        kind = self._lots.choice(KINDS)
        self._fill(getattr(made, kind), depth=0)
        getattr(made, kind).SetInParent()
        return made

    def _fill(self, message: Any, depth: int) -> None:
        for field in message.DESCRIPTOR.fields:
            if self._lots.random() < 0.3:
                continue
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                self._fill_map(message, field)
            elif field.is_repeated:
                for _ in range(self._lots.choice((1, 1, 2, 5))):
                    self._add(message, field, depth)
            elif field.message_type is not None:
                getattr(message, field.name).SetInParent()
                if depth < 3:
                    self._fill(getattr(message, field.name), depth + 1)
            else:
                setattr(message, field.name, self._value(field))

    def _add(self, message: Any, field: Any, depth: int) -> None:
        if field.message_type is None:
            getattr(message, field.name).append(self._value(field))
        else:
            self._fill(getattr(message, field.name).add(), depth + 1)

    def _fill_map(self, message: Any, field: Any) -> None:
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        if value.message_type is None:
            for _ in range(3):
                getattr(message, field.name)[self._value(key)] = self._value(value)

    def _value(self, field: Any) -> Any:
        if field.enum_type is not None:
            return self._lots.choice([each.number for each in field.enum_type.values])
        if field.type == FieldDescriptor.TYPE_STRING and self._lots.random() < 0.6:
            return self._lots.choice(self._true)
        return self._lots.choice(EXTREMES[field.type])


@pytest.mark.parametrize("seed", [4, 6, 12])  # these found something
async def test_whatever_it_says_the_broker_works_for_others_and_tells_only_what_can_be(
    tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_broker(tmp_path) as broker:
        liar, honest = (ScriptedAgent(node_token(tmp_path), name, delivers=False) for name in ("n1", "n2"))
        address, token = broker.broker_address, tenant_token(tmp_path)
        async with tenant_of(address, token) as alice, liar.connected(broker.nodes_address):
            job = await alice.submit("digits")
            run = await liar.wait_run(f"{job.id}-1")
            liar.report(run.run_id, 0.85)
            await until(lambda: liar.wanted is not None and bool(liar.wanted.deliveries))
            making = Liar(seed, (run.run_id, f"{job.id}-tier-1", job.id, "digits", "accuracy", "ab" * 32))
            for number in range(MESSAGES):
                liar.tell_raw(making.message())
                if number % PART == 0:
                    await until(lambda: liar._outbox.qsize() < PART or liar.ending is not None)
                if liar.ending is not None:
                    break
            await until(lambda: liar._outbox.empty() or liar.ending is not None)
            told = [await alice.get(job.id), *await alice.endpoints(), *await alice.nodes()]
            assert [words for each in told for words in unbelievable(each)] == []
            async with honest.connected(broker.nodes_address):
                other = await alice.submit("line", key="other")
                await until(lambda: any(other.id in run_id for run_id in (*honest.runs, *liar.runs)))
                assert (await alice.cancel(other.id)).id == other.id
            assert (await alice.get(job.id)).state != jobs_pb2.JOB_STATE_UNSPECIFIED
        await asyncio.sleep(0)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def unbelievable(message: Message, path: str = "") -> list[str]:
    """Numbers in a message that are none."""
    found = []
    for field, value in message.ListFields():
        name = f"{path}.{field.name}"
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        for each in value if field.is_repeated else [value]:
            if isinstance(each, Message):
                found += unbelievable(each, name)
            elif isinstance(each, float) and not math.isfinite(each):
                found.append(f"{name}: {each}")
    return found
