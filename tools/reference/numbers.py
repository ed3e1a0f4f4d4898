"""What the processes tell Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tiercel.broker.dashboard.metrics import families_of
from tiercel.core.prometheus import Family, process_families
from tiercel.core.status import ClusterStatus
from tiercel.serving.models.registry import Registry
from tiercel.serving.rest.metrics import Metrics
from tiercel.trainer_agent.fence.fence import Fence
from tiercel.trainer_agent.metrics.families import of_accelerators, of_connection, of_deliveries, of_disk, of_runs
from tiercel.trainer_agent.runs.numbers import RunTotals
from tiercel.v1 import disk_pb2
from tools.reference.text import code, described, table

_TITLES = ("metric", "kind", "what it is")


def page() -> str:
    """The page of metrics."""
    parts = ["# Prometheus metrics\n", "Where each process tells them: [operations](../operations.md).\n"]
    parts += ["## Broker\n", _table(families_of(ClusterStatus("")))]
    parts += ["## Agent\n", _table(_of_agent())]
    parts += ["## Inference server\n", "Those that begin with `nv_` have Triton's names.\n", _of_serving()]
    parts += ["## Every process\n", _table(process_families())]
    return "\n".join(parts)


def _of_agent() -> Iterable[Family]:
    yield from of_connection(False, 0, Fence())
    yield from of_runs((), RunTotals(), 0)
    yield from of_deliveries(Counter(), Counter())
    yield from of_accelerators((), ())
    yield from of_disk((0, 0), disk_pb2.NodeDisk())


def _of_serving() -> str:
    told = [(each.name + "_total" * (each.type == "counter"), each) for each in Metrics(Registry()).collect()]
    own = [(name, each) for name, each in told if not name.startswith("process_")]
    return table(
        _TITLES,
        [
            (code(name), each.type.replace("unknown", "counter"), described(name, each.documentation))
            for name, each in own
        ],
    )


def _table(families: Iterable[Family]) -> str:
    return table(_TITLES, [(code(each.name), each.kind, described(each.name, each.documentation)) for each in families])
