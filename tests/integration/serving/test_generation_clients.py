"""The SDK and the command line have a real server generate."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import psutil
import pytest
from click.testing import CliRunner, Result

from testing import onnx_models
from testing.generating import decoder, greedy, small_gpt
from testing.serving_process import ServingProcess, serving, wait_for
from testing.small_tokenizer import VOCABULARY, small_tokenizer
from tiercel import EndpointClient, InvalidSpecError, NotFoundError, SyncEndpointClient, TiercelError, UnavailableError
from tiercel.broker.cli.app import app
from tiercel.broker.client.options import ClientOptions
from tiercel.inference import open_inference_grpc_pb2 as pb
from tiercel.inference import open_inference_grpc_pb2_grpc as pb_grpc

if TYPE_CHECKING:
    from testing.small_gpt import SmallGpt

CONTEXT, LONG = 1024, 900


@pytest.fixture(scope="module")
def model() -> SmallGpt:
    return small_gpt(1, vocabulary=260, context=CONTEXT)


@pytest.fixture(scope="module")
def server(model: SmallGpt, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingProcess]:
    folder = tmp_path_factory.mktemp("clients")
    for name, tokenizer in (("text", "bytes"), ("ids", "")):
        content = decoder(model, vocabulary=260, context_length=CONTEXT, tokenizer=tokenizer)
        onnx_models.put(folder / "models", name, 1, content)
    pieces = small_gpt(2, vocabulary=VOCABULARY, context=CONTEXT)
    said = small_tokenizer().to_str()
    content = decoder(pieces, vocabulary=VOCABULARY, context_length=CONTEXT, tokenizer=said)
    onnx_models.put(folder / "models", "pieces", 1, content)
    with serving(folder / "models", folder, {"max_generated_tokens": LONG}) as server:
        yield server


def tokenizer_of(server: ServingProcess) -> psutil.Process:
    """The process that has its tokenizer."""
    children = psutil.Process(server.process.pid).children(recursive=True)
    (found,) = [each for each in children if "tokenizer_child" in " ".join(each.cmdline())]
    return found


def has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def tiercel(server: ServingProcess, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["generate", *arguments, "--at", server.http])


def test_a_version_speaks_text_by_the_tokenizer_that_it_brings(server: ServingProcess) -> None:
    tokenizer, prompt = small_tokenizer(), "Grüße, 東京 🦊"
    wanted = greedy(small_gpt(2, vocabulary=VOCABULARY, context=CONTEXT), tokenizer.encode(prompt).ids, 40)
    with SyncEndpointClient(server.http) as client:
        whole = client.generate("pieces", prompt, max_tokens=40)
        assert (list(whole.ids), whole.text) == (wanted, tokenizer.decode(wanted))
        parts = client.generate_stream("pieces", prompt, max_tokens=40)
        assert "".join(part.text or "" for part in parts) == whole.text


def test_while_a_text_is_made_ids_others_are_answered_and_its_time_counts(server: ServingProcess) -> None:
    tokenizer = tokenizer_of(server)
    path, prompt = "/v2/models/pieces/generate", "Grüße " * 100
    wanted = server.request("POST", path, {"text_input": prompt, "max_tokens": 4}).content["output_ids"]
    tokenizer.suspend()
    try:
        with ThreadPoolExecutor(1) as callers:
            asked = callers.submit(server.request, "POST", path, {"text_input": prompt, "max_tokens": 4})
            wait_for(lambda: b'rows{state="waiting"} 1' in server.request("GET", "/metrics").body, "the text to wait")
            assert server.request("POST", path, {"input_ids": [1], "max_tokens": 4}).status == 200
            late = server.request("POST", path, {"text_input": prompt, "max_tokens": 4, "timeout": 1000})
            assert late.status == 504, late.body
            assert not asked.done()
            tokenizer.resume()
            assert asked.result().content["output_ids"] == wanted
    finally:
        tokenizer.resume()
    refused = server.request("POST", path, {"text_input": "Grüße " * 1000})
    assert (refused.status, b"tokens" in refused.body) == (400, True), refused.body


async def test_a_text_and_ids_are_answered_whole_and_in_parts(server: ServingProcess, model: SmallGpt) -> None:
    wanted = tuple(greedy(model, list(b"Hi"), 12))
    async with EndpointClient(server.http) as client:
        whole = await client.generate("text", "Hi", max_tokens=12)
        assert (whole.ids, whole.version, whole.finish_reason) == (wanted, 1, "length")
        parts = [part async for part in client.generate_stream("text", "Hi", max_tokens=12)]
        assert [each for part in parts for each in part.ids] == list(wanted)
        assert "".join(part.text or "" for part in parts) == whole.text
        assert [part.finish_reason for part in parts if part.finish_reason] == ["length"]
        without = await client.generate("ids", list(b"Hi"), max_tokens=12)
        assert (without.ids, without.text) == (wanted, None)


def test_programs_without_an_event_loop_ask_likewise(server: ServingProcess, model: SmallGpt) -> None:
    with SyncEndpointClient(server.http) as client:
        assert client.generate("ids", [1, 2], max_tokens=5).ids == tuple(greedy(model, [1, 2], 5))
        parts = client.generate_stream("ids", [1, 2], max_tokens=LONG)
        assert next(parts).ids == (greedy(model, [1, 2], 1)[0],)
        parts.close()  # the caller has enough
        wait_for(lambda: b'rows{state="begun"} 0' in server.request("GET", "/metrics").body, "the row to be free")


async def test_what_goes_wrong_is_a_sentence(server: ServingProcess) -> None:
    async with EndpointClient(server.http) as client:
        with pytest.raises(InvalidSpecError, match="max_token: there is no such parameter"):
            await client.generate("text", "Hi", max_token=3)  # type: ignore[call-arg]
        with pytest.raises(InvalidSpecError, match="max_tokens must be a whole number"):
            await client.generate("text", "Hi", max_tokens=-1)
        with pytest.raises(InvalidSpecError, match="input_ids"):
            await anext(client.generate_stream("ids", "Hi"))
        with pytest.raises(NotFoundError):
            await client.generate("nobody", "Hi")
    async with EndpointClient(server.http, options=ClientOptions(generate_deadline_seconds=1e-3)) as client:
        with pytest.raises(TiercelError, match="does not answer"):
            await client.generate("ids", [1], max_tokens=LONG)


def test_tritonclient_hears_every_token_on_a_stream(server: ServingProcess, model: SmallGpt) -> None:
    command = [sys.executable, str(Path(onnx_models.__file__).with_name("triton_generation.py")), server.grpc]
    ran = subprocess.run(command, capture_output=True, timeout=90, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    said = json.loads(ran.stdout)
    assert said["text"] == greedy(model, list(b"Hi"), 12)
    assert said["texts"] == bytes(each for each in said["text"] if each < 256).decode(errors="replace")
    assert said["ids"] == greedy(model, [1, 2], 12)
    assert (said["reasons"], len(said["errors"])) == (["length", "length"], 1)
    assert "max_tokens" in said["errors"][0]


def test_a_grpc_caller_who_leaves_frees_the_row(server: ServingProcess) -> None:
    request = pb.ModelInferRequest(model_name="ids", id="gone")
    request.inputs.add(name="input_ids", datatype="INT64", shape=[1, 1]).contents.int64_contents.append(1)
    request.parameters["max_tokens"].int64_param = LONG
    with grpc.insecure_channel(server.grpc) as channel:
        stream = pb_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(iter([request]), timeout=90)
        first = next(stream).infer_response
        assert (first.id, first.outputs[0].name, len(first.raw_output_contents[0])) == ("gone", "output_ids", 8)
        stream.cancel()
        wait_for(lambda: b'rows{state="begun"} 0' in server.request("GET", "/metrics").body, "the row to be free")


def test_a_prompt_over_grpc_is_bounded_and_one(server: ServingProcess) -> None:
    large, several = (pb.ModelInferRequest(model_name="ids", id="x") for _ in range(2))
    large.inputs.add(name="input_ids", datatype="INT64", shape=[1, 200_000])
    large.raw_input_contents.append(bytes(8 * 200_000))
    several.inputs.add(name="input_ids", datatype="INT64", shape=[2, 2]).contents.int64_contents.extend([1] * 4)
    with grpc.insecure_channel(server.grpc) as channel:
        stream = pb_grpc.GRPCInferenceServiceStub(channel).ModelStreamInfer(iter([large, several]), timeout=90)
        errors = [each.error_message for each in stream]
    assert ("bytes" in errors[0], "one prompt" in errors[1], len(errors)) == (True, True, 2)


def test_the_command_line_shows_what_was_generated(server: ServingProcess, model: SmallGpt) -> None:
    wanted = greedy(model, [1, 2], 6)
    shown = tiercel(server, "ids", "1,2", "--ids", "--max-tokens", "6")
    assert (shown.exit_code, shown.output) == (0, " ".join(map(str, wanted)) + "\n")
    streamed = tiercel(server, "ids", "1,2", "--ids", "--max-tokens", "6", "--stream")
    assert (streamed.exit_code, streamed.output.split()) == (0, shown.output.split())
    answer = json.loads(tiercel(server, "ids", "1,2", "--ids", "--max-tokens", "6", "--json").output)
    assert answer == {"endpoint": "ids", "version": 1, "ids": wanted, "text": None, "finish_reason": "length"}
    lines = tiercel(server, "text", "Hi", "--max-tokens", "6", "--stream", "--json").output.splitlines()
    parts = [json.loads(line) for line in lines]
    assert [each for part in parts for each in part["ids"]] == greedy(model, list(b"Hi"), 6)
    assert parts[-1]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("ids", "one", "--ids"), 2, "no list of ids"),
        (("ids", "1", "--ids", "--broker", "127.0.0.1:1"), 2, "not both"),
        (("ids", "1", "--ids", "--top-p", "7"), 1, "top_p"),
        (("ids", "Hello"), 1, "input_ids"),
        (("nobody", "Hello", "--stream"), 1, "nobody"),
    ],
)
def test_the_command_line_refuses_with_a_sentence(
    server: ServingProcess, arguments: tuple[str, ...], code: int, said: str
) -> None:
    result = tiercel(server, *arguments)
    assert (result.exit_code, said in result.output) == (code, True), result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("ended_by", "said"), [(signal.SIGTERM, "the server is leaving"), (signal.SIGKILL, "does not answer")]
)
def test_a_server_that_ends_in_the_middle_of_a_stream_leaves_no_half_answer_for_a_whole_one(
    model: SmallGpt, tmp_path: Path, ended_by: signal.Signals, said: str
) -> None:
    tokenizer = small_tokenizer().to_str()
    content = decoder(model, vocabulary=260, context_length=CONTEXT, tokenizer=tokenizer)
    onnx_models.put(tmp_path / "models", "ids", 1, content)
    settings = {"max_generated_tokens": LONG, "drain_timeout": 0.1}
    with serving(tmp_path / "models", tmp_path, settings) as server, SyncEndpointClient(server.http) as client:
        share = {"cpu_weight": 1.0, "cpu_cap_cores": 0.02}  # else the answer might be complete before
        assert server.request("POST", "/v2/shares", {"models": {"ids": share}}).status == 200
        parts = client.generate_stream("ids", [1, 2], max_tokens=LONG)
        assert next(parts).ids == (greedy(model, [1, 2], 1)[0],)
        child = tokenizer_of(server)
        os.kill(server.process.pid, ended_by)
        with pytest.raises(UnavailableError, match=said):
            list(parts)
        wait_for(lambda: has_ended(child), "its tokenizer to leave")
