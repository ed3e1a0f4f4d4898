"""Answers to calls between servers, of one message and of several."""

from __future__ import annotations

import pytest

from tiercel.serving.routing.calls import CallAnswer, read_answer


def headers(answer: CallAnswer) -> dict[bytes, bytes]:
    lines = (line.partition(b": ") for line in answer.headers().split(b"\r\n") if line)
    return {name: value for name, _, value in lines}


@pytest.mark.parametrize(
    "answer",
    [
        CallAnswer(body=b"one"),
        CallAnswer(body=b"last", before=(b"first", b"", b"x" * 70_000)),
        CallAnswer(14, "leaves: später", b"\x08\x0e", before=(b"first",)),
        CallAnswer(3, "wrong"),
    ],
)
def test_an_answer_is_read_as_it_was_written(answer: CallAnswer) -> None:
    assert read_answer(headers(answer), answer.content) == answer


@pytest.mark.parametrize("content", [b"", b"\x00", b"\x00\x00\x00\x05four", b"\x00\x00\x00\x01a\x00\x00\x00\x02b"])
def test_several_messages_that_are_cut_off_are_no_answer(content: bytes) -> None:
    assert read_answer({b"tiercel-grpc-status": b"0", b"tiercel-grpc-several": b"1"}, content) is None
