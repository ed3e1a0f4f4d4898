"""Generation over Triton's ModelStreamInfer: one request, an answer for each token (decoupled, as Triton calls it)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tiercel.core.errors import InvalidRequestError, TiercelError
from tiercel.inference import open_inference_grpc_pb2 as pb
from tiercel.serving.generation.generation import Generation
from tiercel.serving.generation.request import check_size, read_request
from tiercel.serving.grpc.codec import set_parameter
from tiercel.serving.grpc.server.calls import Call
from tiercel.serving.grpc.server.wire import Status
from tiercel.serving.grpc.templates import GrpcRequest
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.requests import InputTensor
from tiercel.serving.runtime.decoder import INPUT_IDS, TEXT_INPUT, Decoder
from tiercel.serving.tensors import encode_raw

_PROMPTS: Final = frozenset({TEXT_INPUT, INPUT_IDS})
_FINAL: Final = "triton_final_response"
"""Says of an answer whether it is the last one of its request, as Triton does."""


def is_prompt(received: GrpcRequest) -> bool:
    """Whether a request is for an answer token by token, if its model gives such, and not for a run of its graph."""
    names = {each.name for each in received.request.inputs}
    return bool(names & _PROMPTS) and not any(name.startswith("past_key_values.") for name in names)


class GrpcGeneration:
    """Has decoders generate; what is asked and answered is that of REST, in tensors.

    A request has ``text_input`` BYTES [1] or ``input_ids`` INT64 or INT32 [n] or [1, n], and parameters, or tensors of
    one element in their place. Answers have ``output_ids`` INT64 [tokens] and, of versions with a tokenizer,
    ``text_output`` BYTES [1]; the last one has the parameter ``finish_reason``.

    Args:
        generation: Generates.
    """

    def __init__(self, generation: Generation) -> None:
        self._generation = generation

    def generates(self, model: str) -> bool:
        """Whether a model is here, and answers token by token."""
        return self._generation.generates(model)

    def begin(self, received: GrpcRequest, call: Call) -> None:
        """Generate; answers are sent to the call, and the last one ends it.

        Raises:
            TiercelError: It makes no sense, or there is no room.
        """
        request = received.request
        check_size(len(received.data))
        found = self._generation.version_for(request.model, request.version)
        message = received.message or pb.ModelInferRequest.FromString(received.data)
        content: dict[str, Any] = {"id": message.id, "parameters": _parameters(message)}
        content |= {each.name: _value(each) for each in request.inputs}
        wanted = read_request(content, request.model, request.version, self._generation.limits, call.remaining())
        row = self._generation.submit(wanted, found, call.arrived, _Answers(call, message.id, found))
        call.on_cancel = row.cancel


class _Answers:
    """See :class:`.Listener`."""

    def __init__(self, call: Call, request_id: str, found: tuple[LoadedVersion, Decoder]) -> None:
        loaded, decoder = found
        self._call = call
        self._id = request_id
        self._model, self._version = loaded.model, loaded.version_text
        self._text = decoder.tokenizer.answer() if decoder.tokenizer else None

    def token(self, token: int) -> None:
        self._call.send(self._said([token], ""))

    def finished(self, reason: str) -> None:
        self._call.answer(self._said([], reason))

    def failed(self, error: TiercelError) -> None:
        self._call.finish(Status[error.grpc_status], error.message)

    def _said(self, tokens: list[int], reason: str) -> bytes:
        said = pb.ModelInferResponse(model_name=self._model, model_version=self._version, id=self._id)
        set_parameter(said.parameters[_FINAL], bool(reason))
        if reason:
            set_parameter(said.parameters["finish_reason"], reason)
        said.outputs.add(name="output_ids", datatype="INT64", shape=[len(tokens)])
        said.raw_output_contents.append(np.array(tokens, "<i8").tobytes())
        if self._text is not None:
            text = self._text.of(tokens, is_end=bool(reason))
            said.outputs.add(name="text_output", datatype="BYTES", shape=[1])
            said.raw_output_contents.append(encode_raw(np.array([text], np.object_)))
        return said.SerializeToString()


def _parameters(message: pb.ModelInferRequest) -> dict[str, Any]:
    chosen = ((name, value, value.WhichOneof("parameter_choice")) for name, value in message.parameters.items())
    return {name: getattr(value, choice) for name, value, choice in chosen if choice}


def _value(tensor: InputTensor) -> Any:
    """What a tensor says in the words of JSON: one element, or a list of ids."""
    array = tensor.array
    if tensor.name == INPUT_IDS or (tensor.name == "stop" and array.size != 1):
        if array.ndim > 1 and array.shape[0] != 1:
            raise InvalidRequestError(f"input '{tensor.name}' has shape {list(array.shape)}; one prompt is a request")
        return array.reshape(-1).tolist()
    if array.size != 1:
        raise InvalidRequestError(f"input '{tensor.name}' has {array.size} elements; give one")
    value = array.reshape(-1)[0]
    return value.item() if isinstance(value, np.generic) else value
