"""Rows that share steps, over a decoder by hand, one that is easily broken for one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tiercel.core.errors import InferenceFailedError, TiercelError
from tiercel.serving.generation.batch import Batch
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
    return Row(nobody, np.array(prompt), 10, GREEDY, np.random.default_rng(0), frozenset(), 0.0, nobody)


class Adding:
    """The next token is the sum of all that a row has; it fails for a row whose sum passes 40."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def __call__(self, outputs: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        assert outputs
        ids, past = feeds["input_ids"], feeds["past_key_values.0.key"]
        self.sizes.append(len(ids))
        present = np.concatenate([past, ids[:, None, :, None].astype(np.float32)], axis=2)
        total = present[:, 0, :, 0].sum(axis=1).astype(int)
        if (total > 40).any():
            raise InferenceFailedError("one of them was too much")
        logits = np.zeros((*ids.shape, VOCABULARY), np.float32)
        logits[np.arange(len(ids)), -1, total] = 1.0
        return [logits, present, present]


def batch(company: Company) -> Batch:
    kind: Any = np.dtype(np.int64)
    heads = ((1, 1), (1, 1))
    return Batch(Decoder(1, kind, True, True, heads, np.dtype(np.float32), vocabulary=VOCABULARY, company=company))


@pytest.mark.parametrize(("company", "sizes"), [(Company.ANY, [3]), (Company.ALIKE, [2, 1]), (Company.NONE, [1, 1, 1])])
def test_rows_share_steps_as_far_as_they_may(company: Company, sizes: list[int]) -> None:
    rows, run, together = [row(1), row(2), row(1, 1, 1)], Adding(), batch(company)
    first = dict(together.step(run, rows))
    assert [first[each] for each in rows] == [1, 2, 3]
    assert run.sizes == [1, 1, 1], "prompts are read by themselves"
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
