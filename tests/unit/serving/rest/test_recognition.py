from __future__ import annotations

import pytest

from tiercel.serving.rest.head import Head
from tiercel.serving.rest.messages import HttpRequest
from tiercel.serving.rest.recent import Recent
from tiercel.serving.rest.recognition import id_text, read_contents, recognise
from tiercel.serving.rest.template_bytes import Recognised

TENSOR = b'{"name":"x","datatype":"FP32","shape":[1,2],"data":%b}'


def found(recent: Recent | None, body: bytes, limit: int = 10_000) -> Recognised | None:
    return recognise(HttpRequest(Head(b"POST", b"/", {}), body, recent=recent), limit)


@pytest.mark.parametrize(("before", "after"), [(b'"id":"%b",', b""), (b"", b',"id" : "%b"')])
def test_one_template_for_all_ids_and_numbers(before: bytes, after: bytes) -> None:
    recent = Recent()
    templates = set()
    for request_id, data in ((b"1", b"[1,2]"), (b"another one", b"[3.25, 4e1]"), (b"1", b"[5,6]")):
        head, tail = (part % request_id if part else b"" for part in (before, after))
        body = b'{%b"inputs":[%b]%b}' % (head, TENSOR % data, tail)
        recognised = found(recent, body)
        assert recognised is not None
        assert (id_text(recognised[1]), body[recognised[2] : recognised[3]]) == (request_id.decode(), data)
        contents = read_contents(recognised, body)
        assert contents is not None
        assert contents.shape == (1, 2)
        templates.add(recognised[0])
    assert len(templates) == 1


def test_connections_share_what_they_know() -> None:
    one, other = Recent(), Recent()
    body = b'{"id":"%b","inputs":[' + TENSOR % b"[1,2]" + b"]}"
    for number, recent in enumerate((one, other)):
        assert found(recent, body % str(number).encode()) is not None
    assert one.template is other.template is not None


def test_an_id_that_json_escapes_is_part_of_the_template() -> None:
    body = b'{"id":"h\\u00e9 \\"","inputs":[' + TENSOR % b"[1,2]" + b"]}"
    recognised = found(Recent(), body)
    assert recognised is not None
    assert id_text(recognised[1]) == 'hé "'


@pytest.mark.parametrize(
    "body",
    [
        b'{"id":"' + 257 * b"a" + b'","inputs":[' + TENSOR % b"[1,2]" + b"]}",  # is not part of a small answer
        b'{"inputs":[{"id":"7",' + (TENSOR % b"[1,2]")[1:] + b"]}",  # is not the request's
        b'{"inputs":[' + TENSOR % b"[[1],[2]]" + b"]}",  # several rows, each in brackets
        b'{"inputs":[' + TENSOR % b"[1,2]" + b"," + TENSOR % b"[1,2]" + b"]}",
        b'{"inputs":[' + TENSOR % b"[1,2]" + b"]",
        b'{"inputs":[]}',
        b"",
    ],
)
def test_what_is_not_plain_is_read_in_full(body: bytes) -> None:
    assert found(Recent(), body) is None


def test_json_over_the_limit_is_not_recognised() -> None:
    recent = Recent()
    body = b'{"inputs":[' + TENSOR % b"[1,2]" + b"]}"
    assert found(recent, body) is not None
    assert found(recent, body, len(body) - 1) is None


@pytest.mark.parametrize(
    "inputs",
    [
        '{"name":"x","shape":[2,2],"datatype":"FP32","data":[[1,2],[3,%d]]}',
        '{"name":"x","shape":[2,2],"datatype":"FP32","data":[[1,2] , [3,%d]]}',
        '{"name":"x","shape":[1],"datatype":"FP32","data":[1]},{"name":"y","shape":[1],"datatype":"FP32","data":[%d]}',
    ],
    ids=["rows", "rows apart", "inputs"],
)
def test_numbers_after_the_contents_do_not_push_out_what_is_remembered(inputs: str) -> None:
    """More rows, or another input: a template with their numbers in it would never be seen again."""
    kept = b'{"inputs":[' + TENSOR % b"[1,2]" + b"]}"
    known = found(Recent(), kept)
    assert known is not None
    for number in range(2_000):
        assert found(Recent(), f'{{"inputs":[{inputs % number}]}}'.encode()) is None
    again = found(Recent(), kept)
    assert again is not None
    assert again[0] is known[0]
