"""Our HPACK against the ``hpack`` package, which knows nothing of it."""

from __future__ import annotations

import contextlib

import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiercel.serving.http2.hpack import STATIC_TABLE, Decoder, HpackError, encode

NAMES = st.sampled_from([b":path", b"content-type", b"x-a", b"grpc-timeout", b"cookie"]) | st.binary(max_size=40)
FIELDS = st.lists(st.tuples(NAMES, st.binary(max_size=60) | st.binary(min_size=300, max_size=1500)), max_size=8)
ROOM = 1 << 20


@settings(deadline=None)
@given(st.lists(st.tuples(FIELDS, st.booleans(), st.sampled_from([None, 0, 60, 500, 4096])), max_size=8))
def test_what_another_encoder_wrote_is_read(blocks: list[tuple[list[tuple[bytes, bytes]], bool, int | None]]) -> None:
    theirs, ours = hpack.Encoder(), Decoder(ROOM)
    for fields, coded, table_size in blocks:
        if table_size is not None:
            theirs.header_table_size = table_size
        block = theirs.encode(fields, huffman=coded)
        assert list(ours.decode(block).fields) == fields
        again = theirs.encode(fields, huffman=coded)
        for _ in range(2):  # remembered or not
            assert list(ours.decode(again).fields) == fields
            again = theirs.encode(fields, huffman=coded)
        assert list(ours.decode(again).fields) == fields


@settings(deadline=None)
@given(FIELDS)
def test_what_is_written_another_decoder_reads(fields: list[tuple[bytes, bytes]]) -> None:
    theirs = hpack.Decoder(ROOM)
    assert [(bytes(name), bytes(value)) for name, value in theirs.decode(encode(fields), raw=True)] == fields
    assert list(Decoder(ROOM).decode(encode(fields)).fields) == fields


@given(st.lists(st.binary(max_size=80), max_size=5))
@settings(max_examples=300, deadline=None)
def test_any_bytes_mean_the_same_to_both_or_are_refused(blocks: list[bytes]) -> None:
    theirs, ours = hpack.Decoder(ROOM), Decoder(ROOM)
    for block in blocks:
        expected: list[tuple[bytes, bytes]] | None = None
        with contextlib.suppress(hpack.HPACKError):
            expected = [(bytes(name), bytes(value)) for name, value in theirs.decode(block, raw=True)]
        try:
            found = ours.decode(block)
        except HpackError:
            # The other one takes table sizes in the midst of a block and integers of any size; it refuses no less else.
            return
        if expected is None:
            return
        assert list(found.fields) == expected


def test_the_static_table() -> None:
    table = hpack.table.HeaderTable.STATIC_TABLE
    assert tuple((bytes(name), bytes(value)) for name, value in table) == STATIC_TABLE


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",  # index 0
        b"\xbe",  # beyond the table
        b"\x82\x3f\xe1\x1f",  # a table size after a field
        b"\x3f\xe2\x1f",  # a table size over ours
        b"\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x00\x05abc",
        b"\x00",
        b"\x00\x01a\x81\xff",  # eight bits of padding
        b"\x00\x01a\x81\x00",  # padding of zeros
        b"\x00\x01a\x84\xff\xff\xff\xff",  # EOS
    ],
)
def test_malformed_blocks(block: bytes) -> None:
    with pytest.raises(HpackError):
        Decoder(ROOM).decode(block)


def test_a_list_over_the_limit_is_not_kept_but_the_table_is() -> None:
    theirs, ours = hpack.Encoder(), Decoder(200)
    assert ours.decode(theirs.encode([(b"a", b"x" * 100), (b"b", b"y" * 100)])).too_large
    assert ours.decode(theirs.encode([(b"b", b"y" * 100)])).fields == ((b"b", b"y" * 100),)
    assert ours.decode(theirs.encode([(b"a", b"x" * 100)])).fields == ((b"a", b"x" * 100),)
