"""What a second node with the model brings, and how requests are divided between two that are not alike.

Three hosts: one whose server has no model and hands requests on by TLS, as any node does, and two that have it. These
two share one core of this machine, each with a quota of it (control groups, version 1), so that two hosts have twice of
what one has on a machine with two cores; who asks is on the other one. One request takes milliseconds of CPU there, and
its asker and the one that hands it on hardly any.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from benchmarks.cluster.bars import OWN
from benchmarks.cluster.front import CHOICES
from benchmarks.results import ROOT
from testing import onnx_models
from testing.hosts import Host, hosts
from testing.routes import write_routes
from tiercel.broker.trust.authority import Authority
from tiercel.core.addresses import split_address
from tiercel.core.routes import Backend
from tiercel.core.trust.certificates import key_to_pem, make_key, to_pem

MODEL: Final = "loop"
STEPS: Final = 20_000
"""Of the model's loop, for each request."""
HALF, QUARTER = 0.5, 0.25
PERIOD_MICROSECONDS: Final = 10_000
"""Of the quotas: short beside the time that a request takes, so that the tail is not that of the quotas."""
LOADED: Final = 0.7
"""Part of what both together answer at most that is asked for where delays are measured."""
SECONDS, ROUNDS = 10.0, 3
_GROUPS: Final = Path("/sys/fs/cgroup/cpu")
_WAIT_SECONDS: Final = 60.0
Json = dict[str, Any]


def measure(folder: Path) -> Json:
    """Figures for the result file.

    Raises:
        RuntimeError: This machine has no second core, or no control groups for quotas.
    """
    if len(os.sched_getaffinity(0)) < 2 or not (_GROUPS / "cpu.cfs_quota_us").parent.is_dir():
        raise RuntimeError(
            "what a second node brings takes two cores, and control groups of version 1 for quotas of CPU"
        )
    authority = Authority.create(datetime.now(UTC))
    with hosts("front", "first", "second") as (front, first, second):
        lab = _Lab(folder, authority, front)
        with lab.node(first, HALF), lab.node(second, HALF):
            rates: dict[str, list[float]] = {"one": [], "two": []}
            for _ in range(ROUNDS):  # in turns, since what else the machine does changes
                for name, nodes in (("one", (first,)), ("two", (first, second))):
                    rates[name].append(lab.ask(OWN, nodes, rate=0.0)["per_second"])
        with lab.node(first, HALF), lab.node(second, QUARTER):
            most = lab.ask(OWN, (first, second), rate=0.0)["per_second"]
            delays: dict[str, list[Json]] = {choice: [] for choice in CHOICES}
            for turn in range(ROUNDS):
                for choice in CHOICES:
                    delays[choice].append(lab.ask(choice, (first, second), rate=LOADED * most, seed=turn))
    return {
        "rates": {name: statistics.median(found) for name, found in rates.items()},
        "rates_of_turns": rates,
        "asked_per_second": round(LOADED * most, 1),
        "delays": {
            choice: {key: statistics.median(each[key] for each in found) for key in ("p50_ms", "p99_ms")}
            for choice, found in delays.items()
        },
        "delays_of_turns": delays,
        "failed": lab.failed,
    }


class _Lab:
    """Servers on hosts."""

    def __init__(self, folder: Path, authority: Authority, front: Host) -> None:
        self._folder = folder
        self._authority = authority
        self._front = front
        self._https: dict[str, str] = {}
        self.failed = 0

    @contextlib.contextmanager
    def node(self, host: Host, cores: float) -> Iterator[None]:
        """A server that has the model, on the first core, which it has so much of."""
        folder = self._folder / f"{host.name}-{cores:g}"
        if not (folder / "models").exists():
            onnx_models.put(folder / "models", MODEL, 1, onnx_models.counting_loop())
        with self._server(host, folder, ["-m", "tiercel.serving"], cpu=0) as state, _quota(state["pid"], cores):
            self._https[host.name] = state["https"]
            yield

    def ask(self, choice: str, nodes: Sequence[Host], rate: float, seed: int = 0) -> Json:
        """Ask at the server that hands on to these nodes; 16 at a time where no rate is given."""
        folder = self._folder / f"front-{choice}"
        (folder / "models").mkdir(parents=True, exist_ok=True)
        backends = tuple(Backend(node.name, 1, https=self._https[node.name]) for node in nodes)
        write_routes(folder / "routes.json", self._front.name, {MODEL: backends})
        with self._server(self._front, folder, ["-m", "benchmarks.cluster.front", choice], cpu=1) as state:
            body = {"inputs": [{"name": "k", "datatype": "INT64", "shape": [], "data": [STEPS]}]}
            given = {"url": f"http://{state['http']}/v2/models/{MODEL}/infer", "body": body, "warm_seconds": 2.0}
            given |= {"rate": rate, "connections": 16, "seconds": SECONDS, "seed": seed}
            command = ["taskset", "--cpu-list", "1", sys.executable, "-m", "benchmarks.cluster.load", json.dumps(given)]
            done = subprocess.run(
                self._front.command(*command), check=True, capture_output=True, cwd=ROOT, timeout=_WAIT_SECONDS * 3
            )
        found: Json = json.loads(done.stdout)
        self.failed += found["failed"]
        return found

    @contextlib.contextmanager
    def _server(self, host: Host, folder: Path, program: Sequence[str], cpu: int) -> Iterator[Json]:
        state = folder / "serving.json"
        state.unlink(missing_ok=True)
        settings = self._settings(host, folder)
        environment = {f"TIERCEL_SERVING_{name.upper()}": str(value) for name, value in settings.items()}
        command = ["taskset", "--cpu-list", str(cpu), sys.executable, *program]
        with (folder / "serving.log").open("ab") as log:
            process = subprocess.Popen(
                host.command(*command), cwd=ROOT, env=os.environ | environment, stdout=log, stderr=log
            )
        try:
            yield _wait_ready(host, state, process, folder / "serving.log")
        finally:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_WAIT_SECONDS)
            process.kill()
            process.wait()

    def _settings(self, host: Host, folder: Path) -> dict[str, object]:
        key = make_key()
        certificate = self._authority.issue_to_node(host.name, key.public_key(), datetime.now(UTC))
        (folder / "identity.pem").write_bytes(key_to_pem(key) + to_pem(certificate, self._authority.certificate))
        (folder / "authority.pem").write_bytes(to_pem(self._authority.certificate))
        (folder / "token").write_text(secrets.token_urlsafe(32))
        (folder / "token").chmod(0o600)
        return {
            "operator_token_file": folder / "token",
            "repository": folder / "models",
            "state_file": folder / "serving.json",
            "lock_file": folder / "serving.lock",
            "routes_file": folder / "routes.json",
            "http_port": 0,
            "grpc_port": 0,
            "tls_host": host.address,
            "tls_identity": folder / "identity.pem",
            "tls_authority": folder / "authority.pem",
        }


def _wait_ready(host: Host, path: Path, process: subprocess.Popen[bytes], log: Path) -> Json:
    """What the server says of itself once it answers with its models."""
    give_up_at = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < give_up_at and process.poll() is None:
        with contextlib.suppress(OSError, ValueError):
            found: Json = json.loads(path.read_text())
            if b" 200 " in _head_of_ready(host, found["http"]):
                return found
        time.sleep(0.05)  # another process, which tells where it listens by a file
    raise RuntimeError(f"the server does not start:\n{log.read_text()[-2000:]}")


def _head_of_ready(host: Host, address: str) -> bytes:
    name, port = split_address(address)
    with host.socket() as asking:
        asking.settimeout(_WAIT_SECONDS)
        asking.connect((name, port))
        asking.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return asking.recv(64)


@contextlib.contextmanager
def _quota(pid: int, cores: float) -> Iterator[None]:
    """Whatever a process and what it starts take of a core, this is the most."""
    group = _GROUPS / f"tiercel-bench-{pid}"
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS))
        (group / "cpu.cfs_quota_us").write_text(str(round(PERIOD_MICROSECONDS * cores)))
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for line in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):  # it has ended
                (_GROUPS / "cgroup.procs").write_text(line)
        group.rmdir()
