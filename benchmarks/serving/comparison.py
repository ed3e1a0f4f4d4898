"""Servers side by side: each is started, checked, measured at every point and ended, round after round."""

from __future__ import annotations

import contextlib
import importlib.metadata
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks.serving.bodies import Bodies, Form, bodies_of, body_of
from benchmarks.serving.checking import check
from benchmarks.serving.environments import UnavailableError, install, version_in
from benchmarks.serving.load_tools import Load, h2load, wrk
from benchmarks.serving.models import Model
from benchmarks.serving.peers.contract import Peer, Setting
from benchmarks.serving.processes import ServerProcesses, running
from benchmarks.serving.samples import Sample, Samples

CONNECTIONS = (1, 8, 32, 64)
WARM_UP_SECONDS = 1
Tell = Callable[[str], None]


class Point(NamedTuple):
    """One way to ask a server."""

    form: Form
    connections: int
    bodies: Bodies = Bodies.SAME


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured."""

    connections: Mapping[str, Sequence[int]]  # by model; a model that is not named is left out
    kinds: Sequence[str] = ("json", "binary", "grpc")  # of forms, see :attr:`~benchmarks.serving.bodies.Form.kind`
    bodies: Sequence[Bodies] = ()  # how requests differ at the most connections, besides being the same
    rounds: int = 2  # each server is started and measured so often
    seconds: int | None = None  # of each window, instead of the server's own; None for that

    def points(self, peer: Peer, model: str) -> list[Point]:
        """What to measure a server with."""
        forms = [form for form in peer.routes if form.kind in self.kinds]
        if model != "mlp":  # what gRPC costs shows where the model takes next to nothing
            forms = [form for form in forms if form is not Form.GRPC]
        wanted = self.connections.get(model, ())
        points = [Point(form, connections) for form in forms for connections in wanted]
        if model == "mlp" and Form.JSON in forms:
            points += [Point(Form.JSON, max(wanted), bodies) for bodies in self.bodies]
        return points


FULL = Plan(
    {"mlp": CONNECTIONS, "lenet": CONNECTIONS, "resnet": (32,)}, bodies=(Bodies.NUMBERS, Bodies.WIDTHS, Bodies.IDS)
)
QUICK = Plan({"mlp": (1, 8)}, bodies=(Bodies.IDS,), rounds=1, seconds=1)


def seconds_of(plan: Plan, peers: Sequence[Peer]) -> float:
    """About how long a comparison takes once all environments are there."""
    total = 0.0
    for peer in peers:
        window, seconds = plan.seconds or peer.window_seconds, 0.0
        for model in plan.connections:
            points = plan.points(peer, model)
            seconds += len(points) * (window + 0.3) + len({point.form for point in points}) * WARM_UP_SECONDS
        seconds += 5.0 * (len(plan.connections) if peer.one_model else 1)
        total += seconds * (plan.rounds if peer.is_fast else 1)
    return total


class Comparison:
    """Measures servers."""

    def __init__(self, plan: Plan, models: Mapping[str, Model], folder: Path, tell: Tell) -> None:
        self._plan = plan
        self._models = models
        self._folder = folder.absolute()
        self._tell = tell
        self.found = Samples()

    def run(self, peers: Sequence[Peer]) -> Samples:
        """Measure all of them; one that cannot be is told of and left out."""
        began = time.monotonic()
        ready = [peer for peer in peers if self._prepare(peer)]
        for round_ in range(self._plan.rounds):
            for peer in ready if round_ % 2 == 0 else reversed(ready):
                if peer.name in self.found.missing or (round_ and not peer.is_fast):
                    continue
                try:
                    self._measure(peer, round_)
                except UnavailableError as error:
                    self._leave_out(peer, str(error))
        self.found.seconds = round(time.monotonic() - began, 1)
        return self.found

    def _prepare(self, peer: Peer) -> bool:
        missing = [program for program in peer.programs if shutil.which(program) is None]
        if missing:
            self._leave_out(peer, f"{', '.join(missing)} is not installed")
            return False
        try:
            if peer.environment:
                self._tell(f"{peer.name}: looking after its environment")
                install(peer.environment)
            self.found.versions[peer.name] = _version(peer)
        except UnavailableError as error:
            self._leave_out(peer, str(error))
            return False
        return True

    def _leave_out(self, peer: Peer, why: str) -> None:
        self._tell(f"{peer.name}: left out: {why}")
        self.found.missing[peer.name] = why

    def _measure(self, peer: Peer, round_: int) -> None:
        models = [model for name, model in self._models.items() if self._plan.points(peer, name)]
        groups = [[model] for model in models] if peer.one_model else [models] if models else []
        for group in groups:
            with started(peer, group, self._folder / peer.name.replace(" ", "-")) as server:
                for model in group:
                    for sample in self._samples(peer, server, model, round_):
                        self.found.samples.append(sample)
                        self._tell(_line(sample))

    def _samples(self, peer: Peer, server: ServerProcesses, model: Model, round_: int) -> Iterator[Sample]:
        points = self._plan.points(peer, model.name)
        for form in dict.fromkeys(point.form for point in points):
            path = peer.routes[form].format(model=model.name)
            check(server.launch, path, model, form)
            ask(server, peer, model, form, 8, WARM_UP_SECONDS)
            for _, connections, bodies in (point for point in points if point.form is form):
                seconds = self._plan.seconds or peer.window_seconds
                before = server.cpu_seconds()
                load = ask(server, peer, model, form, connections, seconds, bodies)
                used = server.cpu_seconds() - before
                yield Sample(
                    peer.name,
                    model.name,
                    form.value,
                    form.kind,
                    connections,
                    round_,
                    round(load.rate, 1),
                    load.p50_ms,
                    load.p99_ms,
                    load.failed,
                    round(used / max(1, load.requests) * 1e6, 2),
                    server.pss_bytes(),
                    bodies.value,
                )
            check(server.launch, path, model, form)


def ask(
    server: ServerProcesses,
    peer: Peer,
    model: Model,
    form: Form,
    connections: int,
    seconds: float,
    bodies: Bodies = Bodies.SAME,
) -> Load:
    """Load a server in a closed loop.

    Raises:
        UnavailableError: The load tool failed.
    """
    launch = server.launch
    body = body_of(model, form) if bodies is Bodies.SAME else bodies_of(model, bodies)
    if form is Form.GRPC:
        return h2load(launch.grpc_port, body, connections, seconds, server.log.parent)
    url = f"http://127.0.0.1:{launch.http_port}{peer.routes[form].format(model=model.name)}"
    return wrk(url, body, connections, seconds, server.log.parent)


def started(peer: Peer, models: Sequence[Model], folder: Path) -> contextlib.AbstractContextManager[ServerProcesses]:
    """A context in which a server runs with these models, in a folder that is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    files = folder / "files"
    files.mkdir(parents=True)
    python = install(peer.environment) if peer.environment else Path(sys.executable)
    return running(peer.start(Setting(files, models, python)), folder / "log")


def _version(peer: Peer) -> str:
    if peer.version:
        return peer.version
    if peer.environment:
        return version_in(peer.environment, peer.distribution)
    return importlib.metadata.version(peer.distribution)


def _line(sample: Sample) -> str:
    return (
        f"{sample.server:<12} {sample.model:<7} {sample.form:<7} {sample.bodies:<7} {sample.connections:3d} conn.  "
        f"{sample.rate:8.0f}/s  p50 {sample.p50_ms:8.3f} ms  p99 {sample.p99_ms:8.3f} ms  "
        f"{sample.cpu_us:8.1f} us CPU  {sample.failed} failed"
    )
