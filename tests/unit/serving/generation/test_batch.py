"""Rows that share steps, over a decoder by hand, one that is easily broken for one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tiercel.core.errors import InferenceFailedError, TiercelError
from tiercel.serving.generation.batch import Batch
from tiercel.serving.generation.prompts import PIECE
from tiercel.serving.generation.row import Row
from tiercel.serving.generation.sampling import GREEDY
from tiercel.serving.runtime.decoder import Company, Decoder
from tiercel.serving.tensors import Array

VOCABULARY = 50


class Nobody:
    """Hears of it, and owns it."""

    def cancel(self, row: Row) -> None: ...
    def token(self, token: int) -> None: ...
    def finished(self, reason: str) -> None: ...
    def failed(self, error: TiercelError) -> None: ...


def row(*prompt: int) -> Row:
    nobody = Nobody()
    found = Row(nobody, GREEDY, np.random.default_rng(0), frozenset(), 0.0, nobody)
    found.ask(np.array(prompt), 10)
    return found


class Adding:
    """The next token is the sum of all that a row has; it fails for a row whose sum passes 40."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.tokens: list[int] = []

    def __call__(self, outputs: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        assert outputs
        ids, past = feeds["input_ids"], feeds["past_key_values.0.key"]
        self.sizes.append(len(ids))
        present = np.concatenate([past, ids[:, None, :, None].astype(np.float32)], axis=2)
        totals = np.cumsum(present[:, 0, :, 0], axis=1)[:, -ids.shape[1] :].astype(int)
        if (totals > 40).any():
            raise InferenceFailedError("one of them was too much")
        self.tokens.append(ids.size)
        return [np.eye(VOCABULARY, dtype=np.float32)[totals], present, present]


def batch(company: Company, *, in_pieces: bool = True) -> Batch:
    kind: Any = np.dtype(np.int64)
    heads, size = ((1, 1), (1, 1)), np.dtype(np.float32)
    return Batch(Decoder(1, kind, True, True, heads, size, vocabulary=VOCABULARY, company=company, in_pieces=in_pieces))


@pytest.mark.parametrize(("company", "sizes"), [(Company.ANY, [3]), (Company.ALIKE, [2, 1]), (Company.NONE, [1, 1, 1])])
def test_rows_share_steps_as_far_as_they_may(company: Company, sizes: list[int]) -> None:
    rows, run, together = [row(1), row(2), row(1, 1, 1)], Adding(), batch(company)
    first = dict(together.step(run, rows))
    assert [first[each] for each in rows] == [1, 2, 3]
    assert sorted(run.sizes, reverse=True) == sizes, "so do their prompts"
    run.sizes.clear()
    second = dict(together.step(run, []))
    assert ([second[each] for each in rows], sorted(run.sizes, reverse=True)) == ([2, 4, 6], sizes)


def test_only_the_guilty_row_fails() -> None:
    good, bad, run, together = row(1), row(30), Adding(), batch(Company.ANY)
    together.step(run, [good, bad])
    found = dict(together.step(run, []))
    assert found[good] == 2
    assert isinstance(found[bad], InferenceFailedError)
    assert dict(together.step(run, [])) == {good: 4}


def test_a_prompt_that_fails_is_the_others_gain() -> None:
    good, bad, run, together = row(1), row(41), Adding(), batch(Company.ANY)
    found = dict(together.step(run, [bad, good]))
    assert (found[good], isinstance(found[bad], InferenceFailedError)) == (1, True)


def test_a_long_prompt_is_read_in_pieces_while_others_go_on() -> None:
    short, long, run, together = row(0), row(*[0] * (4 * PIECE), 7), Adding(), batch(Company.ANY)
    together.step(run, [short])
    together.step(run, [long])
    for _ in range(3):
        assert [each for each, _ in together.step(run, [])] == [short], "it goes on at every step"
    assert max(run.tokens) == PIECE
    found = dict(together.step(run, []))
    assert found[long] == 7
    run.sizes.clear()
    assert (dict(together.step(run, []))[long], run.sizes) == (14, [2])


def test_prompts_take_turns_and_none_takes_more_than_its_share_of_a_step() -> None:
    rows, run, together = [row(*[0] * 3 * PIECE, 5) for _ in range(3)] + [row(3)], Adding(), batch(Company.ANY)
    assert together.step(run, rows) == []
    assert run.tokens == [PIECE, PIECE]
    assert together.step(run, []) == [(rows[3], 3)], "a short one waits for two steps, not for all that came before"
    said = [each for _ in range(4) for each in together.step(run, [])]
    assert {each for each, _ in said} == {*rows}
    assert next(token for each, token in said if each is rows[0]) == 5


def test_a_prompt_of_a_model_that_reads_no_pieces_is_read_as_a_whole() -> None:
    long, run, together = row(*[0] * (4 * PIECE), 7), Adding(), batch(Company.ANY, in_pieces=False)
    assert together.step(run, [long]) == [(long, 7)]


def test_a_prompt_that_nobody_wants_is_not_read_on() -> None:
    long, run, together = row(*[0] * (4 * PIECE)), Adding(), batch(Company.ANY)
    together.step(run, [long])
    long.ended = True
    run.tokens.clear()
    assert (together.step(run, []), run.tokens) == ([], [])


def test_rows_that_ended_run_no_more() -> None:
    left, gone, run, together = row(1), row(2), Adding(), batch(Company.ANY)
    together.step(run, [left, gone])
    gone.ended = True
    run.sizes.clear()
    assert (dict(together.step(run, [])), run.sizes) == ({left: 2}, [1])
    left.ended = True
    later = row(1)
    assert together.step(run, [later]) == [(later, 1)]
    later.ended = True
    assert together.step(run, []) == []
