"""Metadata, readiness and the model repository, alike over every way to ask."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing.serving_callers import Client, RefusedError
from testing.serving_process import ServingProcess
from tiercel.core.errors import ArtefactRefusedError, InvalidRequestError, NotFoundError, TiercelError
from tiercel.serving.dataplane import EXTENSIONS


def test_metadata(client: Client) -> None:
    assert client.metadata("two") == client.metadata("two", "1")
    assert client.metadata("two") == {
        "name": "two",
        "versions": ["1"],
        "platform": "onnxruntime_onnx",
        "inputs": [
            {"name": "a", "datatype": "FP32", "shape": [-1]},
            {"name": "b", "datatype": "FP32", "shape": [-1]},
            {"name": "k", "datatype": "INT64", "shape": []},
        ],
        "outputs": [
            {"name": "total", "datatype": "FP32", "shape": [-1]},
            {"name": "doubled", "datatype": "INT64", "shape": []},
        ],
    }
    with pytest.raises(RefusedError) as caught:
        client.metadata("two", "2")
    assert caught.value.is_a(NotFoundError)


def test_readiness(client: Client) -> None:
    assert [client.ready("two"), client.ready("two", "1"), client.ready("two", "2"), client.ready("bad")] == [
        True,
        True,
        False,
        False,
    ]


def test_the_server_says_what_it_is(client: Client) -> None:
    about = client.server()
    assert about["name"] == "tiercel"
    assert about["extensions"] == list(EXTENSIONS)


def test_the_index(client: Client) -> None:
    lines = {line["name"]: line for line in client.index()}
    assert lines["plus"] == {"name": "plus", "version": "3", "state": "READY", "reason": ""}
    assert lines["bad"]["state"] == "UNAVAILABLE"
    assert "evil.example" in lines["bad"]["reason"]
    assert "bad" not in {line["name"] for line in client.index(only_ready=True)}


def test_unload_and_load(client: Client) -> None:
    client.load("identity_BOOL")
    client.unload("identity_BOOL")
    assert not client.ready("identity_BOOL")
    client.load("identity_BOOL")
    assert client.ready("identity_BOOL")


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        ("nobody", NotFoundError, "model 'nobody' has no version on disk"),
        ("..", InvalidRequestError, "model name '..' is impossible"),
        ("bad", ArtefactRefusedError, "version 1 of model 'bad' was refused"),
    ],
)
def test_loads_that_cannot_be(client: Client, model: str, error: type[TiercelError], message: str) -> None:
    with pytest.raises(RefusedError) as caught:
        client.load(model)
    assert caught.value.is_a(error), caught.value
    assert message in caught.value.message


def test_unloading_what_was_never_loaded(client: Client) -> None:
    with pytest.raises(RefusedError) as caught:
        client.unload("nobody")
    assert caught.value.is_a(NotFoundError)


def test_the_repository_was_not_changed(server: ServingProcess) -> None:
    folder: Path = server.repository / "plus" / "3"
    assert [path.name for path in folder.iterdir()] == ["model.onnx"]
