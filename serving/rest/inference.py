"""Requests of a template that was seen before: the way of nearly all, with other numbers and another id each time.

It gives what reading a request in full and encoding its answer gives, to the byte, and leaves to that whatever is not
plain: several inputs or outputs, classes, variants, trials, HTTP/1.0. On the way there are no objects but the call
itself, from bytes to bytes. A request that is refused for want of room costs a third, since its contents are not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from tiercel.core.errors import TiercelError
from tiercel.serving.requests import InferResult, OutputTensor
from tiercel.serving.rest.encoding import before_binary, before_contents, encode_result
from tiercel.serving.rest.messages import answer_to_defect, error_response, refusal_bytes
from tiercel.serving.rest.recognition import id_text, read_contents
from tiercel.serving.tensors import encode_json, encode_raw

if TYPE_CHECKING:
    from tiercel.serving.dataplane import DataPlane
    from tiercel.serving.dispatch.call import Call
    from tiercel.serving.models.loaded_version import LoadedVersion
    from tiercel.serving.requests import Checked
    from tiercel.serving.rest.messages import HttpRequest, HttpResponse, Respond
    from tiercel.serving.rest.recent import Recent
    from tiercel.serving.rest.template import AnswerFormat
    from tiercel.serving.rest.template_bytes import Recognised
    from tiercel.serving.tensors import Array

# Outputs of more bytes may be worth packing, and what can be saved on their way counts for little.
_SMALL_BYTES = 2048
_NUMPY = orjson.OPT_SERIALIZE_NUMPY
_JSON_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b%b%b"

TAKEN_AND_ANSWERED = (True, None)
NOT_TAKEN = (False, None)
Taken = tuple[bool, "Call | None"]


def infer_by_template(
    plane: DataPlane,
    request: HttpRequest,
    found: Recognised,
    model: str,
    version: str,
    respond: Respond,
    limit: float | None,
) -> Taken:
    """Answer a request that was recognised if this way is for it, and the version that answers knows its template.

    Returns:
        Whether it was taken, so that ``respond`` is called once; and what to cancel when its caller goes away. One that
        was not taken is as it was.
    """
    recent = request.recent
    if recent is None or request.head.is_http_10:
        return NOT_TAKEN
    template, request_id, _, _ = found
    live = plane.known(model, version, template)
    if live is None or len(live[1].outputs) != 1 or template.classes is not None:
        return NOT_TAKEN
    loaded, known = live
    refusal = plane.refusal(loaded, template)
    if refusal is not None:
        respond(refusal_bytes(refusal.message))
        return TAKEN_AND_ANSWERED
    contents = read_contents(found, request.body)
    if contents is None:
        return NOT_TAKEN

    def answered(outcome: list[Array] | TiercelError) -> None:
        if isinstance(outcome, TiercelError):
            respond(error_response(outcome))
            return
        try:
            answer = _encoded(recent, template.answer, request_id, loaded, known, outcome[0])
        except Exception as error:  # the border: what a version gives may be odd
            respond(answer_to_defect("Encoding an answer", error))
        else:
            respond(answer)

    call = plane.apply(
        live, template, {template.inputs[0].name: contents}, request.arrived, answered, limit,
        id_text(request_id) if request_id else "",
    )  # fmt: skip
    return True, call


def _encoded(
    recent: Recent, wanted: AnswerFormat, request_id: bytes, loaded: LoadedVersion, known: Checked, array: Array
) -> HttpResponse | bytes:
    """The answer, a small one in whole; the same bytes as encoding its result gives."""
    name = known.outputs[0]
    if array.nbytes > _SMALL_BYTES:
        tensor = OutputTensor(loaded.outputs[name], array)
        result = InferResult(loaded.model, loaded.version_text, [tensor], loaded.parameters)
        return encode_result(result, wanted.with_id(id_text(request_id)))
    end = b"}]}" if not request_id else b'}],"id":"%b"}' % request_id
    if wanted.is_binary(name):
        data = encode_raw(array)
        before = recent.before_answer(known, array.shape, len(data), len(end))
        if before is None:
            before = before_binary(loaded, name, array.shape, len(data), len(end))
            recent.keep_before_answer(known, array.shape, len(data), len(end), before)
        return b"%b%b%b" % (before, end, data)
    before = recent.before_answer(known, array.shape, 0, 0)
    if before is None:
        before = before_contents(loaded, name, array.shape)
        recent.keep_before_answer(known, array.shape, 0, 0, before)
    data = orjson.dumps(encode_json(array), option=_NUMPY)
    return _JSON_ANSWER % (len(before) + len(data) + len(end), before, data, end)
