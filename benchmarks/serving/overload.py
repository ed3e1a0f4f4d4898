"""More requests than can be answered: what is still answered in time, and how soon the others hear of it.

Server and load generator have a core each, so that neither takes from the other. To refuse a request costs the server
some CPU, too: what is left at L times the peak is at most 1 - (L - 1) * refusal / request of it. A model that takes
milliseconds for a small request shows the queue; one that takes 0.3 ms for 12 kB shows what receiving them costs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.results import Bar
from benchmarks.serving.bodies import Body, Form, body_of
from benchmarks.serving.checking import check
from benchmarks.serving.comparison import ask, started
from benchmarks.serving.cores import apart
from benchmarks.serving.environments import UnavailableError
from benchmarks.serving.models import Model
from benchmarks.serving.peers import OURS, PEERS
from benchmarks.serving.processes import ServerProcesses
from benchmarks.serving.samples import Json

LOADS = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Multiples of the peak."""

DEADLINE_SECONDS = 0.1
REFUSAL_SECONDS = 0.05
SECONDS = 4.0
CONNECTIONS = 900
"""Below the 1024 that the server takes by default."""

PEAK_CONNECTIONS = 32
PEAK_SECONDS = 3


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """What the generator is asked for."""

    path: str  # where on the server
    body: Body  # what
    rate: float  # requests a second
    seconds: float  # for so long
    deadline: float  # delay, in seconds, up to which an answer is of use
    connections: int = CONNECTIONS  # at most so many requests are under way
    seed: int = 0  # of the arrivals


def load_open_loop(server: ServerProcesses, wanted: OpenLoop) -> Json:
    """Run the generator in a process of its own; see :func:`benchmarks.serving.open_loop.summary`.

    Raises:
        UnavailableError: It failed.
    """
    content = server.log.parent / "open-loop.body"
    content.write_bytes(wanted.body.content)
    command = generator_command(server.launch.http_port, wanted, content)
    limit = wanted.seconds * 3 + 30
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        raise UnavailableError("the load generator did not end") from None
    return summary_in(done.returncode, done.stdout, done.stderr)


def generator_command(port: int, wanted: OpenLoop, body: Path) -> list[str]:
    """The generator's command line; ``body`` is the file that holds the request's body."""
    return [
        sys.executable, "-m", "benchmarks.serving.open_loop", str(port), wanted.path, str(body),
        json.dumps(dict(wanted.body.headers)), str(wanted.rate), str(wanted.seconds), str(wanted.connections),
        str(wanted.deadline), str(wanted.seed),
    ]  # fmt: skip


def summary_in(code: int, output: str, errors: str) -> Json:
    """What the generator printed.

    Raises:
        UnavailableError: It failed.
    """
    if code:
        raise UnavailableError(f"the load generator: {errors.strip()[-300:]}")
    found: Json = json.loads(output)
    return found


def run_overload(model: Model, folder: Path, tell: Callable[[str], None], loads: Sequence[float] = LOADS) -> list[Json]:
    """Measure the peak in a closed loop and multiples of it in an open one, in turns.

    What came of a load is compared with the peaks right before and after it, since machines have moods.

    Returns:
        A row for each load.

    Raises:
        UnavailableError: The server did not start, or the generator failed.
    """
    peer = PEERS[OURS]
    path = peer.routes[Form.BINARY].format(model=model.name)
    with apart(started(peer, [model], folder.absolute())) as server:
        check(server.launch, path, model, Form.BINARY)

        def peak_now() -> float:
            return ask(server, peer, model, Form.BINARY, PEAK_CONNECTIONS, PEAK_SECONDS).rate

        ask(server, peer, model, Form.BINARY, PEAK_CONNECTIONS, 1)
        peak = peak_now()
        body = with_timeout(body_of(model, Form.BINARY), DEADLINE_SECONDS)
        rows = []
        for load in loads:
            before = server.cpu_seconds()
            wanted = OpenLoop(path, body, peak * load, SECONDS, DEADLINE_SECONDS)
            found = load_open_loop(server, wanted)
            used, earlier, peak = server.cpu_seconds() - before, peak, peak_now()
            rows.append(_row(load, wanted.rate, (earlier + peak) / 2, found, used))
            tell(_line(rows[-1]))
        check(server.launch, path, model, Form.BINARY)
    return rows


def with_timeout(body: Body, seconds: float) -> Body:
    """A binary request whose answer is of use for so long only, so that the server need not compute it later."""
    length = int(body.headers["Inference-Header-Content-Length"])
    described = json.loads(body.content[:length]) | {"parameters": {"timeout": round(seconds * 1e6)}}
    head = json.dumps(described, separators=(",", ":")).encode()
    headers = dict(body.headers) | {"Inference-Header-Content-Length": str(len(head))}
    return Body(head + body.content[length:], headers)


def _row(load: float, due: float, peak: float, found: Json, cpu_seconds: float) -> Json:
    answered, refused = found["answered"], found["refused"]
    return {
        "load": load,
        "peak_per_second": round(peak),
        "due_per_second": round(due),
        "goodput": round(found["goodput"]),
        "goodput_over_peak": round(found["goodput"] / peak, 3),
        "answered_in_time": round(found["in_time"] / answered, 4) if answered else None,
        "answer_p99_ms": found["good_ms"].get("p99"),
        "refused": refused,
        "refusal_p50_ms": found["refused_ms"].get("p50"),
        "refusal_p99_ms": found["refused_ms"].get("p99"),
        "refusal_max_ms": found["refused_ms"].get("max"),
        "too_late_504": found["statuses"].get("504", 0),
        "other_errors": sum(count for status, count in found["statuses"].items() if status not in _EXPECTED),
        "not_sent": found["unsent"],
        "broken": found["broken"],
        "sent_late_ms": round(found["mean_late_ms"], 2),
        "server_cores": round(cpu_seconds / SECONDS, 2),
        "generator_cores": round(found["generator_cpu_seconds"] / SECONDS, 2),
    }


_EXPECTED = frozenset({"200", "429", "503", "504"})


def bars_of(figures: Json) -> list[Bar]:
    """What has to hold at every load from the peak on."""
    rows: list[Json] = figures["overload"]
    heavy = [row for row in rows if row["load"] > 1]
    longest = [row["refusal_max_ms"] for row in heavy if row["refusal_max_ms"] is not None]
    typical = [row["refusal_p99_ms"] for row in heavy if row["refusal_p99_ms"] is not None]
    in_time = [row["answered_in_time"] for row in heavy if row["answered_in_time"] is not None]
    goodput = min((row["goodput_over_peak"] for row in heavy), default=None)
    errors = sum(row["other_errors"] + row["broken"] for row in rows)
    return [
        Bar("goodput over peak, least of all loads above it", goodput, ">= 0.9"),
        Bar("longest refusal", max(longest, default=None), f"<= {REFUSAL_SECONDS * 1e3:.0f}", "ms"),
        Bar("p99 of refusals, worst load", max(typical, default=None), f"<= {REFUSAL_SECONDS * 1e3:.0f}", "ms"),
        Bar("answers within their deadline, worst load", min(in_time, default=None), ">= 0.95"),
        Bar("errors that are no refusal, and broken connections", errors, "== 0"),
    ]


def _line(row: Json) -> str:
    return (
        f"{row['load']:4.1f} x peak  {row['due_per_second']:7d}/s due  {row['goodput']:6d}/s in time "
        f"({row['goodput_over_peak']:.0%} of peak)  {row['refused']} refused (p99 {row['refusal_p99_ms']} ms, "
        f"max {row['refusal_max_ms']} ms)  {row['too_late_504']} too late  {row['not_sent']} not sent  "
        f"cores: server {row['server_cores']}, generator {row['generator_cores']}"
    )
