"""Endpoints with variants in a real server. The answer says who gave it: y = x + 1 is small's, y = x + 2 large's."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testing import onnx_models
from testing.serving_process import Reply, ServingProcess, serving

CONFIGURATION: dict[str, Any] = {
    "variants": [{"name": "small", "accuracy": 0.8}, {"name": "large", "accuracy": 0.9}],
    "objective_seconds": 5.0,
    "scheduler": "heuristic",
}


def configure(repository: Path, name: str = "digits", **change: Any) -> None:
    folder = repository / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "variants.json").write_text(json.dumps(CONFIGURATION | change))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingProcess]:
    directory = tmp_path_factory.mktemp("variants")
    repository = directory / "models"
    onnx_models.put(repository, "small", 1, onnx_models.plus(1.0))
    onnx_models.put(repository, "large", 1, onnx_models.plus(2.0))
    configure(repository)
    with serving(repository, directory) as running:
        yield running


def body(rows: int = 1, **parameters: Any) -> dict[str, Any]:
    data = [0.0] * 4 * rows
    return {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [rows, 4], "data": data}],
        "parameters": parameters,
    }


def ask(server: ServingProcess, rows: int = 1, endpoint: str = "digits", **parameters: Any) -> Reply:
    return server.request("POST", f"/v2/models/{endpoint}/infer", body(rows, **parameters))


def new_endpoint(server: ServingProcess, name: str, **change: Any) -> None:
    """An endpoint NAME with variants NAME-small and NAME-large of its own."""
    for variant, value in (("small", 1.0), ("large", 2.0)):
        onnx_models.put(server.repository, f"{name}-{variant}", 1, onnx_models.plus(value))
        assert server.load(f"{name}-{variant}").status == 200
    variants = [{"name": f"{name}-small", "accuracy": 0.8}, {"name": f"{name}-large", "accuracy": 0.9}]
    configure(server.repository, name, **{"variants": variants} | change)
    assert server.load(name).status == 200


def test_an_answer_says_variant_version_and_accuracy(server: ServingProcess) -> None:
    content = ask(server, 2).content
    assert content["model_name"] == "digits"
    assert content["model_version"] == "1"
    assert content["parameters"] == {"variant": "large", "version": "1", "accuracy": 0.9}
    assert content["outputs"][0]["data"] == [2.0] * 8


def test_feedback_on_inputs_counts_with_the_variant_that_answers_them(server: ServingProcess) -> None:
    tensor = body(2)["inputs"][0] | {"data": [0.0, 1.0, 0.0, 0.0] * 2}
    reply = server.request("POST", "/v2/models/digits/feedback", {"feedback": [{"inputs": [tensor], "label": [1, 0]}]})
    assert reply.content == {"taken": 1, "refused": [], "unknown": []}
    (told,) = server.request("GET", "/v2/models/digits/feedback").content["versions"]
    assert (told["variant"], told["version"], told["rows"], told["accuracy"]) == ("large", "1", 2, 0.5)


def test_the_endpoint_is_there_like_a_model(server: ServingProcess) -> None:
    assert server.request("GET", "/v2/models/digits/ready").status == 200
    metadata = server.request("GET", "/v2/models/digits").content
    assert [tensor["name"] for tensor in metadata["inputs"]] == ["x"]
    assert [variant["name"] for variant in metadata["parameters"]["variants"]] == ["large", "small"]
    assert server.index()["digits", "1"] == ("READY", "")
    assert server.request("POST", "/v2/models/digits/versions/1/infer", body()).status == 200
    assert server.request("POST", "/v2/models/digits/versions/2/infer", body()).status == 404
    ask(server)
    usage = server.request("GET", "/v2/usage").content["models"]
    (line,) = [line for line in usage if line["name"] == "digits"]
    assert line["requests"] == line["answers"] > 0


def test_hints_of_a_request(server: ServingProcess) -> None:
    assert ask(server, minimum_accuracy=0.85).content["parameters"]["variant"] == "large"
    refused = ask(server, minimum_accuracy=0.95)
    assert (refused.status, refused.error) == (
        400,
        "minimum_accuracy is 0.95, but the most accurate variant of 'digits' has 0.9",
    )
    assert ask(server, timeout=1).status == 504
    wrong = body()
    wrong["inputs"][0]["shape"] = [1, 3]
    assert server.request("POST", "/v2/models/digits/infer", wrong).status == 400


def test_a_configuration_is_loaded_anew_and_a_wrong_one_changes_nothing(server: ServingProcess) -> None:
    new_endpoint(server, "anew", scheduler="static", static_variant="anew-small")
    assert ask(server, endpoint="anew").content["parameters"]["variant"] == "anew-small"
    configure(server.repository, "anew", objective_seconds="soon")
    refused = server.load("anew")
    assert refused.status == 422
    assert "objective_seconds must be a number" in refused.error
    assert ask(server, endpoint="anew").content["parameters"]["variant"] == "anew-small"
    assert server.request("POST", "/v2/repository/models/anew/unload").status == 200
    assert ask(server, endpoint="anew").status == 404


def test_variants_that_are_not_loaded_or_do_not_fit_are_left_out(server: ServingProcess) -> None:
    onnx_models.put(server.repository, "wider", 1, onnx_models.plus(3.0, features=5))
    assert server.load("wider").status == 200
    new_endpoint(
        server, "choosy", variants=["choosy-small", {"name": "wider", "accuracy": 0.99}, "choosy-large", "never-loaded"]
    )
    # Neither has an accuracy, so the only one that does is left, and it takes something else.
    assert ask(server, endpoint="choosy").status == 400
    assert server.request("POST", "/v2/repository/models/wider/unload").status == 200
    (server.repository / "choosy-small" / "2").mkdir()
    for name in ("choosy-small", "choosy-large"):
        folder = onnx_models.put(server.repository, name, 3, onnx_models.plus(4.0))
        (folder / "accuracy.json").write_text('{"accuracy": 0.7}')
        assert server.load(name).status == 200
    content = ask(server, endpoint="choosy").content
    variant = content["parameters"].pop("variant")
    assert variant in {"choosy-small", "choosy-large"}, "they are alike, but what is measured of them differs a little"
    assert content["parameters"] == {"version": "3", "accuracy": 0.7}
    alone = ask(server, endpoint="choosy-small").content
    assert (alone["model_version"], alone["parameters"]) == ("3", {"accuracy": 0.7})
    assert ask(server, endpoint="choosy-small", minimum_accuracy=0.7).status == 200
    assert ask(server, endpoint="choosy-small", minimum_accuracy=0.9).status == 400
    assert server.load("wider").status == 422
    for name in ("choosy-small", "choosy-large"):
        assert server.request("POST", f"/v2/repository/models/{name}/unload").status == 200
    assert ask(server, endpoint="choosy").status == 503


def test_a_variant_is_swapped_under_load_without_a_failed_request(server: ServingProcess) -> None:
    new_endpoint(server, "swapped", scheduler="heuristic")
    done = threading.Event()
    seen: set[tuple[str, str]] = set()
    failures: list[bytes] = []

    def keep_asking() -> None:
        connection = http.client.HTTPConnection(server.http, timeout=60)
        while not done.is_set():
            connection.request("POST", "/v2/models/swapped/infer", json.dumps(body()))
            answer = connection.getresponse()
            content = answer.read()
            if answer.status != 200:
                failures.append(content)
                break
            parameters = json.loads(content)["parameters"]
            seen.add((parameters["variant"], parameters["version"]))
        connection.close()

    threads = [threading.Thread(target=keep_asking) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for version in (2, 3):
            for name in ("swapped-small", "swapped-large"):
                onnx_models.put(server.repository, name, version, onnx_models.plus(float(version)))
                assert server.load(name).status == 200
        assert ask(server, endpoint="swapped").content["parameters"]["version"] == "3"
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert failures == []
    assert len({version for _, version in seen}) >= 2


def test_a_variant_is_added_under_load_and_is_called_by_a_name_of_its_own(server: ServingProcess) -> None:
    repository = server.repository
    small, large = {"name": "small", "model": "_grown.small"}, {"name": "large", "model": "_grown.large"}
    onnx_models.put(repository, "_grown.small", 1, onnx_models.plus(1.0))
    configure(repository, "grown", variants=[small | {"accuracy": 0.8}])
    assert [server.load(name).status for name in ("grown", "_grown.small")] == [200, 200]
    done = threading.Event()
    replies: list[Reply] = []

    def keep_asking() -> None:
        while not done.is_set():
            replies.append(ask(server, endpoint="grown"))

    threads = [threading.Thread(target=keep_asking) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        configure(repository, "grown", variants=[small | {"accuracy": 0.8}, large | {"accuracy": 0.9}])
        assert server.load("grown").status == 200
        onnx_models.put(repository, "_grown.large", 2, onnx_models.plus(2.0))
        assert server.load("_grown.large").status == 200
        assert ask(server, endpoint="grown", minimum_accuracy=0.85).content["parameters"] == {
            "variant": "large",
            "version": "2",
            "accuracy": 0.9,
        }
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert {reply.status for reply in replies} == {200}
    counted = next(m for m in server.request("GET", "/v2/usage").content["models"] if m["name"] == "grown")
    assert counted["answered_by"]["large"] >= 1
    assert counted["answered_by"]["small"] + counted["answered_by"]["large"] == counted["answers"]


def test_a_new_version_that_does_not_fit_the_other_variants_is_refused(server: ServingProcess) -> None:
    new_endpoint(server, "fitting")
    onnx_models.put(server.repository, "fitting-small", 2, onnx_models.plus(3.0, features=5))
    refused = server.load("fitting-small")
    assert refused.status == 422
    assert "its inputs differ" in refused.error
    assert "version 1 stays live" in refused.error
    assert ask(server, endpoint="fitting").status == 200
    assert ask(server, endpoint="fitting-small").content["model_version"] == "1"


def test_a_declared_objective_takes_the_place_of_the_configured_one(server: ServingProcess) -> None:
    new_endpoint(server, "aimed")

    def objective() -> float:
        found: float = server.request("GET", "/v2/models/aimed").content["parameters"]["objective_seconds"]
        return found

    assert objective() == 5.0
    for declared, expected in (({"aimed": {"objective_seconds": 0.25}}, 0.25), ({}, 5.0)):
        assert server.request("POST", "/v2/shares", {"models": declared}).status == 200
        assert ask(server, endpoint="aimed").status in {200, 504}
        assert objective() == expected
