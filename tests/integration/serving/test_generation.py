"""Answers are generated token by token, over REST, by a real server: alone, in company, in parts, and not at all."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from testing import onnx_models
from testing.generating import CONTEXT, LONG, PROMPTS, VOCABULARY, Served, Stream, exported, greedy, small_gpt
from testing.serving_process import DEADLINE, serving, wait_for
from tiercel.broker.cli.asked import request_lines


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("generation")
    model, content = exported(0)
    onnx_models.put(folder / "models", "gpt", 1, content)
    onnx_models.put(folder / "models", "text", 1, exported(1, vocabulary=260, tokenizer="bytes")[1])
    onnx_models.put(folder / "models", "plus", 1, onnx_models.plus(1))
    settings = {"max_generated_rows": 4, "max_waiting_rows": 3, "max_generated_tokens": 1000}
    with serving(folder / "models", folder, settings) as server:
        yield Served(server, model)


def test_a_row_is_what_pytorch_says_token_for_token(served: Served) -> None:
    for prompt in PROMPTS:
        found = served.generate({"input_ids": prompt, "parameters": {"max_tokens": 40}})
        assert found["output_ids"] == greedy(served.model, prompt, 40)
        assert (found["finish_reason"], found["model_name"], found["model_version"]) == ("length", "gpt", "1")


def test_company_changes_no_row(served: Served) -> None:
    alone = [greedy(served.model, prompt, 60) for prompt in PROMPTS]
    with ThreadPoolExecutor(len(PROMPTS)) as callers:
        bodies = [{"id": str(row), "input_ids": prompt, "max_tokens": 60} for row, prompt in enumerate(PROMPTS)]
        together = list(callers.map(served.generate, bodies))
    assert [each["output_ids"] for each in together] == alone
    assert [each["id"] for each in together] == [str(row) for row in range(len(PROMPTS))]
    statistics = served.server.request("GET", "/v2/models/gpt/stats").content["model_stats"][0]
    sizes = {each["batch_size"] for each in statistics["batch_stats"]}
    assert max(sizes) > 1, "no two rows shared a step"
    assert statistics["inference_stats"]["success"]["count"] >= len(PROMPTS)


def test_an_answer_with_an_id_is_explained(served: Served) -> None:
    served.generate({"id": "whole", "input_ids": [5, 9, 3], "max_tokens": 12})
    told = served.server.request("GET", "/v2/models/gpt/requests/whole").content
    assert (told["version"], told["error"], told["batch"]) == ("1", "", None)
    about = told["generation"]
    assert (about["prompt_tokens"], about["tokens"], about["rows"]) == (3, 12, 1)
    assert sum(told["steps"].values()) == pytest.approx(told["seconds"])
    assert list(told["steps"]) == ["parse", "queue", "first", "rest"]
    assert about["first_token_seconds"] == pytest.approx(told["seconds"] - told["steps"]["rest"])
    assert about["seconds_per_token"] == pytest.approx(told["steps"]["rest"] / 11)
    assert "answered  by gpt version 1" in (lines := request_lines(told))
    assert "generated 12 tokens after 3, beside 0 others" in lines
    served.cap(0.02)
    try:
        stream = Stream(served.server.http, {**LONG, "id": "gone"})
        next(iter(stream))
        stream.leave()
        wait_for(lambda: served.begun() == 0, "the row to be free")
    finally:
        served.cap(None)
    told = served.server.request("GET", "/v2/models/gpt/requests/gone").content
    assert "went away" in told["error"]
    assert 1 <= told["generation"]["tokens"] < LONG["max_tokens"]


def test_tokens_come_as_events(served: Served) -> None:
    body = {"input_ids": [5, 9], "max_tokens": 12}
    stream = Stream(served.server.http, body)
    assert (stream.status, stream.answer.getheader("content-type")) == (200, "text/event-stream")
    events = list(stream)
    tokens = [token for event in events for token in event["output_ids"]]
    assert tokens == greedy(served.model, [5, 9], 12)
    assert [event.get("finish_reason") for event in events] == [None] * 12 + ["length"]
    again = served.server.request("POST", "/v2/models/gpt/versions/1/generate_stream", body)
    assert again.body.count(b"data: ") == 13


def test_a_connection_goes_on_after_a_stream(served: Served) -> None:
    connection = http.client.HTTPConnection(served.server.http, timeout=DEADLINE)
    with contextlib.closing(connection):
        for _ in range(2):
            connection.request(
                "POST", "/v2/models/gpt/generate_stream", json.dumps({"input_ids": [1], "max_tokens": 3})
            )
            assert connection.getresponse().read().count(b"data: ") == 4
        connection.request("GET", "/v2/health/live")
        assert connection.getresponse().status == 200


def raw(served: Served, version: str, body: bytes, *, is_read: bool = True) -> bytes:
    host, _, port = served.server.http.rpartition(":")
    with socket.create_connection((host, int(port)), DEADLINE) as connection:
        head = (
            f"POST /v2/models/gpt/generate_stream HTTP/{version}\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        )
        connection.sendall(head.encode() + b"\r\n" + body)
        received = b""
        while is_read and (data := connection.recv(65536)):
            received += data
    return received


def test_old_http_gets_a_stream_that_ends_with_its_connection(served: Served) -> None:
    head, _, events = raw(served, "1.0", json.dumps({"input_ids": [5], "max_tokens": 3}).encode()).partition(
        b"\r\n\r\n"
    )
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"chunked" not in head
    assert b"Connection: close" in head
    tokens = [token for line in events.splitlines() if line for token in json.loads(line[6:])["output_ids"]]
    assert tokens == greedy(served.model, [5], 3)


def test_who_does_not_wait_for_the_first_token_leaves_nothing(served: Served) -> None:
    for _ in range(30):
        raw(served, "1.1", json.dumps(LONG).encode(), is_read=False)
    wait_for(lambda: served.begun() == 0, "all rows to be free")


def test_the_seed_decides(served: Served) -> None:
    def ask(seed: int, **more: Any) -> list[int]:
        how = {"temperature": 1.5, "top_p": 0.95, "top_k": 40, "seed": seed, "max_tokens": 30}
        return list(served.generate({"input_ids": [4, 8], **how, **more})["output_ids"])

    first = ask(7)
    with ThreadPoolExecutor(3) as callers:
        assert list(callers.map(ask, [7, 7, 7])) == [first] * 3
    assert ask(8) != first
    assert ask(7, top_k=1) == greedy(served.model, [4, 8], 30)


def test_an_answer_ends_where_it_is_told_to(served: Served) -> None:
    whole = greedy(served.model, [5, 9], 30)
    end = whole[10]
    found = served.generate({"input_ids": [5, 9], "max_tokens": 30, "stop": [end]})
    assert (found["output_ids"], found["finish_reason"]) == (whole[: whole.index(end)], "stop")
    found = served.generate({"input_ids": [1] * (CONTEXT - 3), "max_tokens": 100})
    assert (len(found["output_ids"]), found["finish_reason"]) == (3, "length"), "the model remembers no more"


def test_texts_are_bytes_where_the_version_says_so(served: Served) -> None:
    found = served.generate({"text_input": "Grüße", "max_tokens": 8}, model="text")
    ids = served.generate({"input_ids": list("Grüße".encode()), "max_tokens": 8}, model="text")["output_ids"]
    assert found["output_ids"] == ids
    assert found["text_output"] == bytes(each for each in ids if each < 256).decode(errors="replace")
    events = list(Stream(served.server.http, {"text_input": "Grüße", "max_tokens": 8}, model="text"))
    assert "".join(event["text_output"] for event in events) == found["text_output"]
    status, error = served.refused({"text_input": "a"})
    assert status == 400
    assert "input_ids" in error


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "input_ids"),
        ({"input_ids": []}, "prompt has 0 tokens"),
        ({"input_ids": [-1]}, "from 0"),
        ({"input_ids": [VOCABULARY]}, f"0 to {VOCABULARY - 1}"),
        ({"input_ids": [2**63]}, "ids"),
        ({"input_ids": [1.5]}, "whole numbers"),
        ({"input_ids": [True]}, "whole numbers"),
        ({"input_ids": "1"}, "whole numbers"),
        ({"input_ids": [1] * CONTEXT}, "together"),
        ({"input_ids": [1], "text_input": "a"}, "either"),
        ({"input_ids": [1], "max_tokens": 10**9}, "max_tokens"),
        ({"input_ids": [1], "max_tokens": 0}, "max_tokens"),
        ({"input_ids": [1], "temperature": -1}, "temperature"),
        ({"input_ids": [1], "temperature": 1e308}, "temperature"),
        ({"input_ids": [1], "temperature": "hot"}, "temperature"),
        ({"input_ids": [1], "temperature": math.nan}, "JSON"),
        ({"input_ids": [1], "top_p": 0}, "top_p"),
        ({"input_ids": [1], "top_k": -1}, "top_k"),
        ({"input_ids": [1], "seed": -1}, "seed"),
        ({"input_ids": [1], "stop": [None]}, "stop"),
        ({"input_ids": [1], "stop": list(range(1000))}, "stop"),
        ({"input_ids": [1], "timeout": -5}, "timeout"),
        ({"input_ids": [1], "parameters": []}, "parameters"),
        ({"input_ids": [1], "id": 7}, "id"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(served: Served, body: object, said: str) -> None:
    for how in ("generate", "generate_stream"):
        status, error = served.refused(body, how=how)
        assert (status, said in error) == (400, True), error


def test_models_that_are_no_decoders_do_not_generate(served: Served) -> None:
    status, error = served.refused({"input_ids": [1]}, model="plus")
    assert (status, "no decoder" in error) == (400, True)
    assert served.refused({"input_ids": [1]}, model="nobody")[0] == 404
    for model, told in (("gpt", {"prompt": "input_ids"}), ("text", {"prompt": "text_input"}), ("plus", None)):
        assert served.server.request("GET", f"/v2/models/{model}").content.get("parameters") == told
    assert served.server.request("POST", "/v2/models/gpt/versions/9/generate", {"input_ids": [1]}).status == 404
    status, error = served.refused(b'{"input_ids": [' + b"1," * 600_000 + b"1]}")
    assert (status, "bytes" in error) == (413, True)


def test_a_caller_who_leaves_frees_the_row(served: Served) -> None:
    served.cap(0.02)  # else the answer might be complete before
    try:
        stream = Stream(served.server.http, LONG)
        next(iter(stream))
        assert served.begun() == 1
        stream.leave()
        wait_for(lambda: served.begun() == 0, "the row to be free")
        assert served.rows()["tiercel_generation_cache_bytes"] == 0
    finally:
        served.cap(None)
    served.generate({"input_ids": [1], "max_tokens": 2})


def test_more_than_may_wait_are_refused(served: Served) -> None:
    served.cap(0.02)
    streams: list[Stream] = []
    try:
        with ThreadPoolExecutor(7) as callers:
            begun = [callers.submit(Stream, served.server.http, LONG) for _ in range(7)]  # four begin, three wait
            wait_for(lambda: served.rows()['tiercel_generation_rows{state="waiting"}'] == 3, "three to wait")
            reply = served.server.request("POST", "/v2/models/gpt/generate", LONG)
            assert (reply.status, reply.headers["retry-after"]) == (503, "1"), reply.body
            late = served.refused({**LONG, "timeout": 1000})
            assert late[0] == 503
            served.cap(None)
            streams = [each.result() for each in begun]
            for stream in streams:
                tokens = [token for event in stream for token in event["output_ids"]]
                assert len(tokens) == LONG["max_tokens"]
    finally:
        served.cap(None)
        for stream in streams:
            stream.leave()


def test_time_is_bounded(served: Served) -> None:
    served.cap(0.02)
    try:
        status, error = served.refused({**LONG, "timeout": 200_000})
        assert (status, "0.2 seconds" in error) == (504, True)
        events = list(Stream(served.server.http, {**LONG, "timeout": 1_500_000}))
        assert "1.5 seconds" in events[-1]["error"], "an answer that has begun says at its end that it is not complete"
        wait_for(lambda: served.begun() == 0, "the rows to be free")
    finally:
        served.cap(None)


def test_a_swap_loses_nothing(tmp_path: Path) -> None:
    (old, first), (new, second) = exported(0), exported(5)
    onnx_models.put(tmp_path / "models", "gpt", 1, first)
    with serving(tmp_path / "models", tmp_path) as server:
        served = Served(server, old)
        served.cap(0.05)
        body = {"input_ids": [5, 9], "max_tokens": 120}
        stream = Stream(server.http, body)
        events = iter(stream)
        got = [next(events)]
        onnx_models.put(server.repository, "gpt", 2, second)
        assert server.load("gpt").content["version"] == "2"
        assert served.begun() == 1, "the swap did not come while the row was generated"
        served.cap(None)
        found = served.generate(body)
        assert (found["model_version"], found["output_ids"]) == ("2", greedy(new, [5, 9], 120))
        got += events
        assert {event["model_version"] for event in got} == {"1"}
        assert [token for event in got for token in event["output_ids"]] == greedy(old, [5, 9], 120)
        wait_for(lambda: server.index()["gpt", "1"][0] == "UNAVAILABLE", "the old version to be released")


def test_cache_is_bounded(tmp_path: Path) -> None:
    _, content = exported(0)
    onnx_models.put(tmp_path / "models", "gpt", 1, content)
    with serving(tmp_path / "models", tmp_path, {"max_cache_bytes": 512 * 100}) as server:  # 100 tokens
        served = Served(server, small_gpt(0))
        status, error = served.refused({"input_ids": [1] * 200, "max_tokens": 5})
        assert (status, "bytes" in error) == (413, True)
        found = served.generate({"input_ids": [1] * 50, "max_tokens": 500})
        assert (len(found["output_ids"]), found["finish_reason"]) == (51, "length")
        with ThreadPoolExecutor(8) as callers:  # two at a time fit
            bodies = [{"input_ids": [row] * 10, "max_tokens": 40} for row in range(8)]
            answers = list(callers.map(served.generate, bodies))
        assert [len(each["output_ids"]) for each in answers] == [40] * 8
        statistics = server.request("GET", "/v2/models/gpt/stats").content["model_stats"][0]
        assert max(each["batch_size"] for each in statistics["batch_stats"]) <= 2
        assert served.rows()["tiercel_generation_cache_bytes"] == 0


def lying(change: str) -> bytes:
    """A decoder's file that says something else than it does."""
    model = onnx.load_model_from_string(exported(0)[1])
    if change == "metadata":
        onnx.helper.set_model_props(model, {"context_length": "-4"})
    elif change == "heads":
        model.graph.input[3].type.tensor_type.shape.dim[1].dim_value = 3
    elif change == "fixed length":
        model.graph.input[3].type.tensor_type.shape.dim[2].dim_value = 7
    elif change == "no present":
        del model.graph.output[-1]
    elif change == "types":
        model.graph.input[1].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    elif change == "forgets":  # the cache that it gives is the one that it got, with something at the end
        for name in [each.name for each in model.graph.output[1:]]:
            node = next(each for each in model.graph.node if name in each.output)
            zeros = onnx.helper.make_node("Mul", [f"{name}.kept", "nothing"], [name])
            node.output[list(node.output).index(name)] = f"{name}.kept"
            model.graph.node.append(zeros)
            for each in model.graph.node[:-1]:
                each.input[:] = [f"{name}.kept" if given == name else given for given in each.input]
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0, np.float32), "nothing"))
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("change", ["metadata", "heads", "fixed length", "no present", "types", "forgets"])
def test_a_file_that_lies_is_refused_when_it_is_loaded(served: Served, change: str) -> None:
    name = f"liar-{change.replace(' ', '-')}"
    onnx_models.put(served.server.repository, name, 1, lying(change))
    reply = served.server.load(name)
    assert reply.status == 422, reply.body
    assert served.generate({"input_ids": [1], "max_tokens": 1})["model_version"] == "1"


def test_counts_are_told(served: Served) -> None:
    before = served.rows()
    served.generate({"input_ids": [1, 2, 3], "max_tokens": 7})
    after = served.rows()
    name = 'tiercel_generated_tokens_total{model="gpt"}'
    assert after[name] == before.get(name, 0) + 7


def test_a_newer_version_is_tried_with_a_share_of_the_answers(tmp_path: Path) -> None:
    onnx_models.put(tmp_path / "models", "gpt", 1, exported(0)[1])
    with serving(tmp_path / "models", tmp_path) as server:
        served = Served(server, small_gpt(0))
        onnx_models.put(tmp_path / "models", "gpt", 2, exported(5)[1])
        plan = {"canary_fraction": 0.5, "canary_requests": 20, "canary_max_latency_ratio": 1e6}
        assert server.request("POST", "/v2/repository/models/gpt/load", {"parameters": plan}).status == 200

        def promoted() -> bool:
            served.generate({"input_ids": [1], "max_tokens": 2})
            trial = server.request("GET", "/v2/models/gpt/canary").content["canary"]
            assert trial["state"] in {"RUNNING", "PROMOTED"}, trial
            return bool(trial["state"] == "PROMOTED")

        wait_for(promoted, "the trial to end")
        assert served.generate({"input_ids": [1], "max_tokens": 2})["model_version"] == "2"


def test_callers_who_come_and_go_take_nothing_from_others(served: Served) -> None:
    def come_and_go(number: int) -> None:
        stream = Stream(served.server.http, {**LONG, "input_ids": [number]})
        if stream.status == 200:
            next(iter(stream))
        stream.leave()

    with ThreadPoolExecutor(12) as callers:
        wanted = [callers.submit(come_and_go, number % VOCABULARY) for number in range(120)]
        for each in wanted:
            each.result()
    wait_for(lambda: served.begun() == 0, "all rows to be free")
    found = served.generate({"input_ids": [5, 9], "max_tokens": 40})
    assert found["output_ids"] == greedy(served.model, [5, 9], 40)
