"""One request to a server, its answer compared with ONNX Runtime's: what answers wrongly is not measured."""

from __future__ import annotations

import contextlib
import http.client

import numpy as np

from benchmarks.serving.bodies import Form, answer_in, body_of
from benchmarks.serving.environments import UnavailableError
from benchmarks.serving.load_tools import GRPC_PATH
from benchmarks.serving.models import Array, Model
from benchmarks.serving.processes import Launch

TIMEOUT_SECONDS = 60.0
TOLERANCE = 1e-3


class WrongAnswerError(UnavailableError):
    """A server answers something else than ONNX Runtime, or an error."""


def check(launch: Launch, path: str, model: Model, form: Form) -> None:
    """Ask once and compare.

    Raises:
        WrongAnswerError: The answer is not that of ONNX Runtime.
    """
    try:
        found = _grpc(launch.grpc_port, model) if form is Form.GRPC else _http(launch.http_port, path, model, form)
    except WrongAnswerError:
        raise
    except Exception as error:  # servers answer nonsense in more ways than can be named
        raise WrongAnswerError(f"{model.name} as {form}: {error!r}"[:300]) from error
    wanted = model.answer.reshape(-1)
    if found.shape != wanted.shape or not np.allclose(found, wanted, rtol=TOLERANCE, atol=TOLERANCE):
        raise WrongAnswerError(f"{model.name} as {form}: {found.tolist()} is not {wanted.tolist()}"[:300])


def _http(port: int, path: str, model: Model, form: Form) -> Array:
    body = body_of(model, form)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    with contextlib.closing(connection):
        connection.request("POST", path, body.content, dict(body.headers))
        answer = connection.getresponse()
        content = answer.read()
    if answer.status != 200:
        raise WrongAnswerError(f"{model.name} as {form}: {answer.status} {content[:200]!r}")
    return answer_in(content, {name.lower(): value for name, value in answer.getheaders()}, form)


def _as_it_is(message: bytes) -> bytes:
    return message


def _grpc(port: int, model: Model) -> Array:
    import grpc

    from tiercel.inference import open_inference_grpc_pb2 as protocol

    message = body_of(model, Form.GRPC).content[5:]
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(GRPC_PATH, _as_it_is, protocol.ModelInferResponse.FromString)
        answer = call(message, timeout=TIMEOUT_SECONDS, wait_for_ready=True)
    if answer.raw_output_contents:
        return np.frombuffer(answer.raw_output_contents[0], np.float32)
    return np.asarray(answer.outputs[0].contents.fp32_contents, np.float32)
