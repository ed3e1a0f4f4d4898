"""Shares of models in a real server under real load. All limits are in CPU time, so that no speed is assumed."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from testing import onnx_models
from testing.serving_process import ServingProcess, serving, wait_for

STEPS = 2_000  # of a loop: about a millisecond of CPU a request


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServingProcess]:
    repository = tmp_path / "models"
    for name in ("first", "second"):
        onnx_models.put(repository, name, 1, onnx_models.counting_loop())
    with serving(repository, tmp_path, {"inference_threads": 1}) as running:
        yield running


@contextmanager
def load(server: ServingProcess, model: str, callers: int) -> Iterator[None]:
    """Ask a model all the time over so many connections."""
    body = json.dumps({"inputs": [{"name": "k", "datatype": "INT64", "shape": [], "data": [STEPS]}]})
    done = threading.Event()
    failures: list[str] = []

    def ask() -> None:
        connection = http.client.HTTPConnection(server.http, timeout=60)
        while not done.is_set():
            connection.request("POST", f"/v2/models/{model}/infer", body)
            answer = connection.getresponse()
            content = answer.read()
            if answer.status != 200:
                failures.append(content.decode())
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(callers)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert failures == []


def usage(server: ServingProcess) -> tuple[float, dict[str, dict[str, float]]]:
    """Uptime, and the counters by model."""
    content = server.request("GET", "/v2/usage").content
    return content["uptime_seconds"], {line["name"]: line for line in content["models"]}


def declare(server: ServingProcess, shares: Mapping[str, Mapping[str, float]]) -> None:
    assert server.request("POST", "/v2/shares", {"models": shares}).content == {"models": len(shares)}


def measured(server: ServingProcess, answers: int) -> tuple[float, dict[str, dict[str, float]]]:
    """Seconds, and what the counters grew by, until every model answered so many more."""
    began, before = usage(server)

    def grown() -> tuple[float, dict[str, dict[str, float]]] | None:
        now, after = usage(server)
        keys = ("requests", "answers", "delay_seconds", "cpu_seconds")
        change = {name: {key: after[name][key] - before[name][key] for key in keys} for name in after}
        return (now - began, change) if all(line["answers"] >= answers for line in change.values()) else None

    return wait_for(grown, f"{answers} answers of each model")


def delay(line: Mapping[str, float]) -> float:
    return line["delay_seconds"] / line["answers"]


@pytest.mark.alone
def test_a_cap_slows_its_model_down_and_no_other_and_can_be_lifted(server: ServingProcess) -> None:
    with load(server, "first", 2), load(server, "second", 2):
        _, before = measured(server, 100)
        declare(server, {"first": {"cpu_weight": 0.1, "cpu_cap_cores": 0.02}})
        measured(server, 5)  # what it had saved up
        seconds, capped = measured(server, 30)
        declare(server, {})
        measured(server, 20)
        _, lifted = measured(server, 100)
    assert capped["first"]["cpu_seconds"] <= 0.02 * seconds * 1.5 + 0.01
    assert capped["second"]["cpu_seconds"] > 3 * capped["first"]["cpu_seconds"]
    assert delay(capped["first"]) > 3 * delay(before["first"])
    assert delay(capped["first"]) > 3 * delay(capped["second"])
    assert delay(lifted["first"]) < delay(capped["first"]) / 2
    # what one takes the other has: both did the same before, and do again
    assert lifted["first"]["cpu_seconds"] > lifted["second"]["cpu_seconds"] / 2
    assert usage(server)[1]["first"]["requests"] >= usage(server)[1]["first"]["answers"] > 0


@pytest.mark.alone
def test_weights_share_the_thread_that_both_want(server: ServingProcess) -> None:
    declare(server, {"first": {"cpu_weight": 0.2}, "second": {"cpu_weight": 0.8}})
    with load(server, "first", 6), load(server, "second", 6):
        measured(server, 5)
        _, shared = measured(server, 60)
    ratio = shared["second"]["cpu_seconds"] / shared["first"]["cpu_seconds"]
    assert 2.5 < ratio < 6.5
    assert delay(shared["first"]) > delay(shared["second"])


def test_shares_outlive_a_new_version_and_come_before_the_model(server: ServingProcess) -> None:
    declare(server, {"first": {"cpu_cap_cores": 0.5}, "third": {"cpu_cap_cores": 0.25}})
    onnx_models.put(server.repository, "first", 2, onnx_models.counting_loop())
    onnx_models.put(server.repository, "third", 1, onnx_models.counting_loop())
    assert {server.load(name).status for name in ("first", "third")} == {200}
    caps = {name: line["cpu_cap_cores"] for name, line in usage(server)[1].items()}
    assert caps == {"first": 0.5, "second": None, "third": 0.25}


def test_what_cannot_be_is_refused_and_changes_nothing(server: ServingProcess) -> None:
    declare(server, {"first": {"cpu_cap_cores": 0.5}})
    refused = server.request("POST", "/v2/shares", {"models": {"first": {"cpu_cap_cores": -1}}})
    assert refused.status == 400
    assert "models.first.cpu_cap_cores" in refused.error
    page = server.request("POST", "/v2/shares", {"models": {}}, {"Origin": "http://evil.example"})
    assert page.status == 403
    assert usage(server)[1]["first"]["cpu_cap_cores"] == 0.5


def test_requests_that_fail_are_not_answers(server: ServingProcess) -> None:
    body = {
        "inputs": [{"name": "k", "datatype": "INT64", "shape": [], "data": [10**9]}],
        "parameters": {"timeout": 1000},
    }
    assert server.request("POST", "/v2/models/first/infer", body).status == 504
    line = wait_for(
        lambda: next((u for u in [usage(server)[1]["first"]] if u["cpu_seconds"] > 0), None), "its CPU time"
    )
    assert (line["requests"], line["answers"], line["delay_seconds"]) == (1, 0, 0.0)
