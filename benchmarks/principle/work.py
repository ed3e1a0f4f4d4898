"""The kinds of work on which policies are compared: programs anew in each draw, some of them real.

Made-up programs learn along six shapes, three of which no forecast of ours is fitted with; everything else stands in
:mod:`benchmarks.simulated_workloads`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from benchmarks.principle.real import Program, RecordedArrivals, cluster_jobs, edited_programs, repeated_programs
from benchmarks.simulated_workloads import Kind, log_normal, pareto, past_runs, program
from tiercel.broker.simulation import Workload
from tiercel.broker.simulation.arrivals import AllAtOnce, Arrivals, Poisson, Uniform
from tiercel.broker.simulation.curves import Family

GIB = 1024**3
_FAMILIES = (Family.EXPONENTIAL, Family.STRETCHED, Family.HYPERBOLIC, Family.STEPPED, Family.POWER, Family.SIGMOID)
_PROGRAMS = 16
# Work that comes against what the cluster can do meanwhile: bursts make queues, and so does the mean.
_LOAD = 1.3
_NODES = 3
_CORES_OF_A_NODE = 2.0
_CORES = _NODES * _CORES_OF_A_NODE

_BUSY = (AllAtOnce(), Poisson(0.4), Uniform(120.0))


def kinds(draw: int) -> tuple[Kind, ...]:
    """The kinds of work with the programs of a draw."""
    heavy = _programs("heavy", pareto(_PROGRAMS, 6.0, 1.1, 600.0, f"heavy {draw}"), draw)
    submitted, sizes = cluster_jobs()
    cluster = _programs("cluster", [8.0 * size for size in _sources(draw, "cluster").sample(sizes, _PROGRAMS)], draw)
    arrivals = RecordedArrivals(submitted, sum(map(_work, cluster)) / _PROGRAMS / _CORES / _LOAD)
    large = [
        replace(each, resources=replace(each.resources, memory_bytes=16 * GIB))
        for each in _programs("large", log_normal(_PROGRAMS, 8.0, 1.0, f"large {draw}"), draw)
    ]
    alike = _programs("alike", log_normal(7, 2.5, 0.8, f"alike {draw}"), draw)
    mixed = _programs("mixed", log_normal(_PROGRAMS, 8.0, 1.0, f"mixed {draw}"), draw)
    hopeless = _programs("doubtful", log_normal(_PROGRAMS, 8.0, 0.8, f"hopeless {draw}"), draw, hopeless=4)
    edited = edited_programs(_PROGRAMS, _sources(draw, "edited"))
    repeated = repeated_programs(_PROGRAMS, _sources(draw, "repeated"))
    return (
        _kind("alike", alike, 7, (AllAtOnce(), Uniform(30.0)), nodes=1),
        _kind("mixed", mixed, 48, _BUSY),
        _kind("heavy-tailed", heavy, 48, _BUSY),
        _kind("hopeless", hopeless, 24, (AllAtOnce(), Poisson(0.3), Uniform(60.0)), nodes=2),
        _real("real curves", edited, 48),
        _real("real runs", repeated, 32),
        _kind("cluster arrivals", cluster, 48, (arrivals,)),
        _kind("memory-bound", large, 48, _BUSY),
    )


def _sources(draw: int, name: str) -> Random:
    return Random(f"{name} {draw}")


def _programs(name: str, works: Sequence[float], draw: int, hopeless: int = 0) -> list[Workload]:
    first = _sources(draw, f"shapes of {name}").randrange(len(_FAMILIES))
    return [
        program(f"{name}{number}", _FAMILIES[(first + number) % len(_FAMILIES)], work, 0.1, hopeless=number < hopeless)
        for number, work in enumerate(works)
    ]


def _work(workload: Workload) -> float:
    """CPU seconds of a program altogether."""
    return workload.startup_cpu_seconds + workload.max_epochs * workload.epoch_cpu_seconds


def _kind(
    name: str, workloads: Sequence[Workload], jobs: int, arrivals: Sequence[Arrivals], nodes: int = _NODES
) -> Kind:
    return _of_programs(name, [Program(each, past_runs(each)) for each in workloads], jobs, arrivals, nodes)


def _real(name: str, programs: Sequence[Program], jobs: int) -> Kind:
    return _of_programs(name, programs, jobs, _BUSY, _NODES)


def _of_programs(name: str, programs: Sequence[Program], jobs: int, arrivals: Sequence[Arrivals], nodes: int) -> Kind:
    return Kind(
        name=name,
        workloads=tuple(each.workload for each in programs),
        jobs=jobs,
        arrivals=tuple(arrivals),
        nodes=nodes,
        cores=_CORES_OF_A_NODE,
        past={each.workload.name: each.past for each in programs},
    )
