"""Who gives way, by what share of which node."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tiercel.trainer_agent.limits import cpu_priority as module
from tiercel.trainer_agent.limits.contract import CpuShare
from tiercel.trainer_agent.limits.cpu_priority import CpuPriority, RunPriority

Asked = list[tuple[list[int], bool]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What the kernel is asked for, by processes."""
    found: Asked = []

    def note(pids: Callable[[], Iterable[int]], *, gives_way: bool) -> bool:
        found.append((list(pids()), gives_way))
        return True

    monkeypatch.setattr(module, "set_giving_way", note)
    return found


@pytest.mark.parametrize(
    ("node_cores", "cpu_cores", "weight", "gives_way"),
    [
        (2.0, 1.0, 0.49, False),
        (2.0, 1.0, 0.03, False),
        (2.0, 1.0, 0.02, True),
        (2.0, 2.0, 0.04, True),
        (64.0, 1.0, 1 / 64, False),  # one of 64 in front
        (64.0, 1.0, 0.0005, True),
    ],
)
def test_a_floor_is_little_of_what_a_run_could_use(
    asked: Asked, node_cores: float, cpu_cores: float, weight: float, gives_way: bool
) -> None:
    RunPriority(CpuPriority(node_cores=node_cores), cpu_cores).apply(lambda: [7, 8], CpuShare(weight))
    assert asked == ([([7, 8], True)] if gives_way else [])


def test_the_kernel_is_asked_when_something_changes(asked: Asked) -> None:
    priority = RunPriority(CpuPriority(node_cores=2.0), 1.0)
    for weight in (0.001, 0.002, 0.5, 0.4, 0.001):
        priority.apply(lambda: [7], CpuShare(weight))
    assert [gives_way for _, gives_way in asked] == [True, False, True]


def test_nobody_gives_way_where_weights_are_not_enforced(asked: Asked) -> None:
    RunPriority(CpuPriority(0.0, 0.0), 1.0).apply(lambda: [7], CpuShare(0.001))
    assert asked == []
