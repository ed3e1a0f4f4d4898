"""The agent's numbers under the names that Prometheus knows them by: base units, and few labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tiercel import __version__
from tiercel.core.prometheus import Family, process_families
from tiercel.trainer_agent.accelerators.contract import Accelerator, AcceleratorReading
from tiercel.trainer_agent.accelerators.watch import AcceleratorWatch
from tiercel.trainer_agent.connection.stream import BrokerConnection
from tiercel.trainer_agent.deliveries.deliveries import Deliveries
from tiercel.trainer_agent.deliveries.delivery_log import DELIVERED, FAILED
from tiercel.trainer_agent.disk.room import RoomWatch
from tiercel.trainer_agent.fence.fence import Fence
from tiercel.trainer_agent.inference_server.server import InferenceServer
from tiercel.trainer_agent.limits.cpu import Capacity
from tiercel.trainer_agent.runs.numbers import OUTCOMES, STATES, RunNumbers, RunTotals
from tiercel.trainer_agent.runs.table import RunTable
from tiercel.v1 import disk_pb2

MAX_RUNS: Final = 200
"""Of so many, by id, it is told what each has and uses; they are all counted."""

_OF_RUNS: Final[tuple[tuple[str, str, Callable[[RunNumbers], float]], ...]] = (
    ("run_cpu_seconds_total", "CPU that the run has used", lambda run: run.usage.cpu_seconds),
    ("run_cpu_weight_ratio", "Its share of the CPU where that is contended", lambda run: run.share.cpu.weight),
    ("run_cpu_cap_cores", "Cores that it may use at most; 0 for no cap", lambda run: run.share.cpu.cap_cores or 0.0),
    ("run_memory_bytes", "Memory that it holds", lambda run: run.usage.memory_bytes),
    (
        "run_accelerator_seconds_total",
        "Time that it kept an accelerator busy, of the busiest",
        lambda run: run.usage.accelerator_seconds,
    ),
    (
        "run_accelerator_memory_bytes",
        "Accelerator memory that it holds",
        lambda run: run.usage.accelerator_memory_bytes,
    ),
)


class NodeMetrics:
    """Reads the numbers from whoever has them, when somebody asks.

    Args:
        capacity: What jobs may use.
        runs: The node's runs.
        deliveries: Its deliveries.
        connection: Its stream to the broker.
        fence: How long it may go without that.
        serving: Its inference server.
        accelerators: Sees its accelerators.
        room: Sees its disk.
    """

    def __init__(
        self,
        capacity: Capacity,
        runs: RunTable,
        deliveries: Deliveries,
        connection: BrokerConnection,
        fence: Fence,
        serving: InferenceServer,
        accelerators: AcceleratorWatch,
        room: RoomWatch,
    ) -> None:
        self._capacity = capacity
        self._runs = runs
        self._deliveries = deliveries
        self._connection = connection
        self._fence = fence
        self._serving = serving
        self._accelerators = accelerators
        self._room = room

    def families(self) -> list[Family]:
        """All numbers as they are now; blocks no longer than the disk takes to say what it has left."""
        return [
            _family("build_info", "The agent's version", [({"version": __version__}, 1)]),
            _family("cpu_cores", "Cores that jobs may use", [({}, self._capacity.cpu_cores)]),
            _family("memory_bytes", "Memory that jobs may use", [({}, self._capacity.memory_bytes)]),
            *of_connection(self._connection.is_connected, self._connection.count, self._fence),
            *of_runs(self._runs.numbers(), self._runs.totals(), len(self._runs.ended())),
            *of_deliveries(self._deliveries.stages(), self._deliveries.outcomes),
            *of_accelerators(self._accelerators.listed, self._accelerators.readings),
            *of_disk(self._room.free_and_total(), self._room.measured),
            _family("serving_up", "Whether the inference server answers", [({}, bool(self._serving.address()))]),
            *process_families(),
        ]


def of_connection(is_connected: bool, count: int, fence: Fence) -> Iterable[Family]:
    """How it stands with the broker."""
    yield _family("connected", "Whether the broker has welcomed this node", [({}, is_connected)])
    yield _family("connections_total", "Streams to the broker that came about", [({}, count)])
    yield _family(
        "broker_silence_seconds", "Since what the broker answered last was sent", [({}, fence.silence_seconds)]
    )
    yield _family("fence_fallen", "Whether runs are stopped for want of the broker", [({}, fence.has_fallen)])


def of_runs(runs: Sequence[RunNumbers], totals: RunTotals, unconfirmed: int) -> Iterable[Family]:
    """What there is of runs: of all together, and of each within bounds.

    Args:
        runs: Those that live.
        totals: What was counted over the agent's life.
        unconfirmed: How many have ended without that the broker has confirmed it.
    """
    states = Counter(run.state for run in runs)
    yield _family("runs", "Runs that live, by state", [({"state": state}, states[state]) for state in STATES])
    yield _family("runs_unconfirmed", "Runs whose end the broker has not confirmed", [({}, unconfirmed)])
    ended = [({"outcome": outcome}, totals.ended[outcome]) for outcome in OUTCOMES]
    yield _family("runs_ended_total", "Runs that ended in this life of the agent, by outcome", ended)
    yield _family("reports_total", "Reports of scripts that came in", [({}, totals.reports)])
    yield _family(
        "reports_left_out_total",
        "Those that gave way to a better and a later one, as there were too many",
        [({}, totals.reports_left_out)],
    )
    told = sorted(runs, key=lambda run: run.run_id)[:MAX_RUNS]
    for name, documentation, value in _OF_RUNS:
        yield _family(name, documentation, [({"job": run.job_id, "run": run.run_id}, value(run)) for run in told])
    yield _family(
        "run_accelerator_fraction_ratio",
        "Its share of the time of an accelerator that it holds",
        [
            ({"job": run.job_id, "run": run.run_id, "accelerator": held.id}, held.fraction)
            for run in told
            for held in run.share.accelerators
        ],
    )


def of_deliveries(stages: Counter[str], outcomes: Counter[str]) -> Iterable[Family]:
    """What becomes of deliveries: those that are under way, and those that ended."""
    names = ("exporting", "loading")
    yield _family("deliveries", "Deliveries under way, by stage", [({"stage": name}, stages[name]) for name in names])
    yield _family(
        "deliveries_total",
        "Deliveries that ended in this life of the agent, by outcome",
        [({"outcome": name}, outcomes[name]) for name in (DELIVERED, FAILED)],
    )


def of_accelerators(listed: Sequence[Accelerator], readings: Sequence[AcceleratorReading]) -> Iterable[Family]:
    """How accelerators are, as their driver says."""
    yield _family(
        "accelerator_memory_size_bytes",
        "Memory of the accelerator",
        [({"accelerator": each.id, "name": each.name}, each.memory_bytes) for each in listed],
    )
    yield _family(
        "accelerator_memory_used_bytes",
        "Memory that all processes hold of it",
        [({"accelerator": each.accelerator_id}, each.memory_used_bytes) for each in readings],
    )
    yield _family(
        "accelerator_utilisation_ratio",
        "Part of the time in which it computed lately",
        [({"accelerator": one.accelerator_id}, one.utilisation) for one in readings if one.utilisation is not None],
    )
    yield _family(
        "accelerator_well",
        "Whether nothing is wrong with it",
        [({"accelerator": each.accelerator_id}, not each.problem) for each in readings],
    )


def of_disk(free_and_total: tuple[int, int] | None, measured: disk_pb2.NodeDisk | None) -> Iterable[Family]:
    """What the disk has, now, and what took room when that was measured last; nothing that is not known."""
    if free_and_total is not None:
        yield _family("disk_free_bytes", "What the disk has left", [({}, free_and_total[0])])
        yield _family("disk_size_bytes", "What it has in all", [({}, free_and_total[1])])
    if measured is not None:
        parts = [({"part": part.name}, part.size_bytes) for part in measured.parts]
        yield _family("disk_used_bytes", "What is below the state directory, by folder", parts)


def _family(name: str, documentation: str, samples: Sequence[tuple[dict[str, str], float]]) -> Family:
    return Family(f"tiercel_agent_{name}", documentation, samples)
