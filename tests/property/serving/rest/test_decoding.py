"""What is recognised by its bytes is decoded to exactly what reading it in full gives, and refused for the same."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tiercel.core.errors import TiercelError
from tiercel.serving.requests import InferRequest
from tiercel.serving.rest import decoding
from tiercel.serving.rest.head import Head
from tiercel.serving.rest.messages import HttpRequest
from tiercel.serving.rest.recognition import recognise
from tiercel.serving.rest.template import AnswerFormat

LIMIT = 3000
NUMBERS: st.SearchStrategy[Any] = st.one_of(
    st.floats(width=32),
    st.floats(),
    st.integers(-3, 300),
    st.sampled_from([2**63, 2**64, -(2**63), 1e39, True, None, "1", [1.0], {}]),
)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """JSON and the bytes after it: requests, with odd elements, keys in other places, and a few bytes changed."""
    elements = draw(st.lists(NUMBERS if draw(st.booleans()) else st.integers(0, 9).map(lambda n: n / 4), max_size=5))
    size = len(elements)
    tensor: dict[str, Any] = {
        "name": draw(st.sampled_from(["x", '"data"', "[", "]"])),
        "datatype": draw(
            st.sampled_from(["FP32", "FP32", "FP64", "INT64", "UINT64", "INT8", "FP16", "BOOL", "BYTES", "X"])
        ),
        "shape": draw(st.sampled_from([[size], [1, size], [size, 1], [size + 1], [], [0]])),
    }
    tail = b""
    if draw(st.booleans()):
        tensor["data"] = draw(
            st.sampled_from([elements, elements, [elements], [elements, 1], elements[0] if size else 0])
        )
    if draw(st.integers(0, 2)) == 0:
        tail = draw(st.binary(min_size=4, max_size=12))
        tensor["parameters"] = {draw(st.sampled_from(["binary_data_size", "binary_data_size", "data"])): len(tail)}
    more: dict[str, Any] = draw(
        st.sampled_from([{}, {}, {"id": "7"}, {"data": [1]}, {"outputs": [{"name": "y", "data": [2]}]}])
    )
    parts = list({"inputs": [tensor], **more}.items())
    text = json.dumps(dict(reversed(parts) if draw(st.booleans()) else parts), ensure_ascii=False).encode()
    if draw(st.booleans()):
        text = text.replace(b", ", b",").replace(b": ", b":")
    for _ in range(draw(st.sampled_from([0, 0, 1]))):
        at = draw(st.integers(0, len(text)))
        text = (
            text[:at]
            + draw(st.sampled_from([b"", b"[", b"]", b"}", b",", b'"data":[3],', b" ", b"\xff", b"0"]))
            + text[at + 1 :]
        )
    return text, tail


def as_comparable(question: InferRequest, form: AnswerFormat) -> Any:
    tensors = [
        (each.name, each.data_type, each.array.shape, each.array.dtype, each.array.tobytes())
        for each in question.inputs
    ]
    strings = [each.array.tolist() for each in question.inputs if each.data_type.is_bytes]
    if strings:  # arrays of objects hold addresses
        tensors = [(*each[:4], b"") for each in tensors]
    rest = (question.outputs, question.timeout, question.priority, question.minimum_accuracy, question.classes)
    return tensors, strings, rest, form


def outcome(function: Any, *arguments: Any) -> Any:
    try:
        return as_comparable(*function(*arguments))
    except TiercelError as error:
        return type(error), error.message


def in_full(text: bytes, tail: bytes) -> tuple[InferRequest, AnswerFormat]:
    form, inputs, _ = decoding._in_full(text, memoryview(tail), LIMIT)
    question = InferRequest(
        "m", "", inputs, form.outputs, form.timeout, form.priority, form.minimum_accuracy, form.classes
    )
    return question, form.answer


@settings(max_examples=300)
@given(bodies(), st.booleans())
@example((b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}],"inputs":[]}', b""), False)
@example((b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1],"d\\u0061ta":[2]}]}', b""), False)
@example((b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[[1],2]}]}', b""), False)
@example(('{"id":"é","inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]}'.encode(), b""), False)
@example((b'{"id":"\\n","inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]}', b""), False)
@example((b'{"id":"1","inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}]}', b""), False)
@example((b'{"id":"1","inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1]}],"id":"2"}', b""), False)
@example((b'{"id":"\\n","inputs":[]}', b""), True)
@example((b'{"id":"1","inputs":[{"name":"x","id":"3","datatype":"FP32","shape":[1],"data":[1]}]}', b""), False)
@example((b'{"inputs":[{"id":"3","name":"x","datatype":"FP32","shape":[1],"data":[1]}],"id":"1"}', b""), False)
@example((b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1],"data":[1]}]}]}', b""), False)
def test_recognised_or_not_is_the_same(body: tuple[bytes, bytes], announced: bool) -> None:
    text, tail = body
    headers = {b"inference-header-content-length": b"%d" % len(text)} if tail or announced else {}
    request = HttpRequest(Head(b"POST", b"/", headers), text + tail)
    expected = outcome(in_full, text, tail)
    for _ in range(2):
        assert outcome(decoding.decode_request, request, recognise(request, LIMIT), "m", "", LIMIT) == expected
