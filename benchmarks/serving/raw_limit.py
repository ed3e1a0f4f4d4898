"""A model that takes longer than everything around it: how much of ONNX Runtime's own rate a server passes on."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.results import Bar
from benchmarks.serving.bodies import Form
from benchmarks.serving.checking import check
from benchmarks.serving.comparison import ask, started
from benchmarks.serving.cores import apart, available, kept_on
from benchmarks.serving.environments import UnavailableError
from benchmarks.serving.models import Model
from benchmarks.serving.peers import OURS, PEERS
from benchmarks.serving.samples import Json
from tiercel.serving.memory import environment_with_huge_pages

BATCHES = (1, 8, 32)
SECONDS = 2
CONNECTIONS = 32
FORMS = (Form.BINARY, Form.JSON)

_RAW = """
import json, resource, sys, threading, time
import numpy as np, onnxruntime as ort

path, shape, batches, seconds, threads = sys.argv[1], *map(json.loads, sys.argv[2:])
options = ort.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
options.add_session_config_entry("session.intra_op.allow_spinning", "0")
session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])

def work(rows, until, done):
    count = 0
    while time.perf_counter() < until:
        session.run(None, {"input": rows})
        count += len(rows)
    done.append(count)

def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

found = []
for batch in batches:
    rows = np.random.default_rng(7).random((batch, *shape), np.float32)
    work(rows, time.perf_counter() + 0.3, [])
    began, before, done = time.perf_counter(), cpu(), []
    workers = [threading.Thread(target=work, args=(rows, began + seconds, done)) for _ in range(threads)]
    for worker in workers: worker.start()
    for worker in workers: worker.join()
    items = sum(done)
    rate = items / (time.perf_counter() - began)
    found.append({"batch": batch, "rate": rate, "cpu_us": (cpu() - before) / items * 1e6})
print(json.dumps(found))
"""


def run_raw_limit(model: Model, folder: Path, tell: Callable[[str], None], rounds: int = 3) -> list[Json]:
    """Raw ONNX Runtime and our server, one after the other, on one and the same core.

    The load generator has another core, so that what it takes is taken from nobody. On one core the comparison is
    the hardest: every microsecond of the way to the model is missing from the model. Raw runs have the same pages as
    the server's, and are made before and after each of the server's, since the machine's speed drifts by as much as
    the goal is away from 1.

    Returns:
        A row for each round and form.

    Raises:
        UnavailableError: One of them failed.
    """
    rows = []
    before = _raw(model)
    for index in range(rounds):
        for form in FORMS:
            served = _served(model, form, folder)
            after = _raw(model)
            raw = _between(before, after)
            before = after
            rows.append(
                {
                    "model": model.name,
                    "form": form.value,
                    "round": index,
                    "raw_rate": round(raw["rate"], 1),
                    "raw_batch": raw["batch"],
                    "raw_cpu_us": round(raw["cpu_us"], 1),
                    "served_rate": round(served["rate"], 1),
                    "served_cpu_us": round(served["cpu_us"], 1),
                    "rate_over_raw": round(served["rate"] / raw["rate"], 3),
                    "raw_cpu_over_served": round(raw["cpu_us"] / served["cpu_us"], 3),
                }
            )
            tell(f"raw {raw['rate']:.0f}/s (batch {raw['batch']}), served {served['rate']:.0f}/s: {rows[-1]}")
    return rows


def bars_of(figures: Json) -> list[Bar]:
    """What a server must not take away, for each model and form: medians over the rounds."""
    rows: list[Json] = figures["resnet"]
    bars = []
    for model, form in dict.fromkeys((row["model"], row["form"]) for row in rows):
        own = [row for row in rows if (row["model"], row["form"]) == (model, form)]
        rate, cpu = (statistics.median(row[name] for row in own) for name in ("rate_over_raw", "raw_cpu_over_served"))
        bars += [
            Bar(f"{model}, {form}, one core: rate over raw ONNX Runtime's", rate, ">= 0.95"),
            Bar(f"{model}, {form}: CPU of a raw run over CPU of a request", cpu, ">= 0.9"),
        ]
    return bars


def _between(before: Sequence[Json], after: Sequence[Json]) -> Json:
    """The best batch by the means of two measurements, and what the machine gave in between."""
    means = [
        {"batch": one["batch"]} | {name: (one[name] + other[name]) / 2 for name in ("rate", "cpu_us")}
        for one, other in zip(before, after, strict=True)
    ]
    return max(means, key=lambda each: float(each["rate"]))


def _raw(model: Model) -> list[Json]:
    arguments = [json.dumps(each) for each in (model.kind.shape, BATCHES, SECONDS, 1)]
    command = [sys.executable, "-c", _RAW, str(model.path), *arguments]
    environment = os.environ | environment_with_huge_pages()
    try:
        with kept_on(set(available()[:1])):
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    except subprocess.TimeoutExpired:
        raise UnavailableError("raw ONNX Runtime did not end") from None
    if done.returncode:
        raise UnavailableError(f"raw ONNX Runtime: {done.stderr.strip()[-300:]}")
    found: list[Json] = json.loads(done.stdout)
    return found


def _served(model: Model, form: Form, folder: Path) -> Json:
    peer = PEERS[OURS]
    with apart(started(peer, [model], folder.absolute())) as server:
        check(server.launch, peer.routes[form].format(model=model.name), model, form)
        ask(server, peer, model, form, CONNECTIONS, 1)
        before = server.cpu_seconds()
        load = ask(server, peer, model, form, CONNECTIONS, 2 * SECONDS)
        used = server.cpu_seconds() - before
    return {"rate": load.rate, "cpu_us": used / max(1, load.requests) * 1e6}
