from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tiercel.core.errors import ArtefactRefusedError, InferenceFailedError
from tiercel.serving.runtime.decoder import Company, Decoder, decoder_of
from tiercel.serving.runtime.decoding import next_step, read_piece, read_prompts, tried
from tiercel.serving.tensors import BY_NAME, Array, TensorSpec

VOCABULARY, HEADS, SIZE = 11, 2, 3


def specs(**shapes: tuple[str, tuple[int, ...]]) -> dict[str, TensorSpec]:
    names = {name: name.replace("_of_", ".") for name in shapes}
    return {names[name]: TensorSpec(names[name], BY_NAME[kind], shape) for name, (kind, shape) in shapes.items()}


def pair(prefix: str, shape: tuple[int, ...] = (-1, HEADS, -1, SIZE)) -> dict[str, TensorSpec]:
    return {f"{prefix}.0.{kind}": TensorSpec(f"{prefix}.0.{kind}", BY_NAME["FP32"], shape) for kind in ("key", "value")}


IDS = specs(input_ids=("INT64", (-1, -1)), attention_mask=("INT64", (-1, -1)), position_ids=("INT64", (-1, -1)))
INPUTS = IDS | pair("past_key_values")
OUTPUTS = specs(logits=("FP32", (-1, -1, VOCABULARY))) | pair("present")


def found(inputs: Mapping[str, TensorSpec] = INPUTS, metadata: Mapping[str, str] | None = None) -> Decoder:
    decoder = decoder_of(inputs, OUTPUTS, metadata or {})
    assert decoder is not None
    return decoder


def test_a_decoder_is_known_by_what_it_takes_and_gives() -> None:
    decoder = found(metadata={"eos_token_id": "0", "context_length": "64", "other": "x"})
    assert (decoder.layers, decoder.heads, decoder.mask, decoder.positions) == (1, ((HEADS, SIZE),) * 2, True, True)
    assert (decoder.end_token, decoder.context) == (0, 64)
    assert decoder.token_bytes == 2 * HEADS * SIZE * 4
    few = found({name: spec for name, spec in INPUTS.items() if name not in {"attention_mask", "position_ids"}})
    assert (few.mask, few.positions, few.end_token, few.context) == (False, False, None, None)


def test_other_models_are_none() -> None:
    assert decoder_of(specs(x=("FP32", (-1, 4))), specs(y=("FP32", (-1, 4))), {}) is None
    assert decoder_of(IDS, OUTPUTS, {}) is None
    assert decoder_of(INPUTS | specs(encoder_hidden_states=("FP32", (-1, -1, 8))), OUTPUTS, {}) is None
    assert decoder_of(pair("past_key_values"), OUTPUTS, {}) is None


@pytest.mark.parametrize(
    ("inputs", "outputs", "metadata"),
    [
        (IDS | pair("past_key_values", (-1, HEADS, SIZE)), OUTPUTS, {}),
        (IDS | pair("past_key_values", (1, HEADS, -1, SIZE)), OUTPUTS, {}),
        (IDS | pair("past_key_values", (-1, HEADS, 7, SIZE)), OUTPUTS, {}),
        (IDS | pair("past_key_values", (-1, -1, -1, SIZE)), OUTPUTS, {}),
        (IDS | pair("past_key_values", (-1, 10**6, -1, 10**6)), OUTPUTS | pair("present", (-1, -1, -1, -1)), {}),
        (INPUTS, OUTPUTS | pair("present", (-1, HEADS + 1, -1, SIZE)), {}),
        (INPUTS, pair("present"), {}),
        (INPUTS, specs(logits=("FP32", (-1, -1, VOCABULARY))), {}),
        (INPUTS, OUTPUTS | specs(logits=("FP32", (-1, VOCABULARY))), {}),
        (INPUTS, OUTPUTS | specs(logits=("BYTES", (-1, -1, VOCABULARY))), {}),
        (INPUTS | specs(input_ids=("FP32", (-1, -1))), OUTPUTS, {}),
        (INPUTS | specs(position_ids=("INT64", (-1,))), OUTPUTS, {}),
        ({name.replace(".0.", ".1."): spec for name, spec in INPUTS.items()}, OUTPUTS, {}),
        (INPUTS, OUTPUTS, {"context_length": "0"}),
        (INPUTS, OUTPUTS, {"context_length": "9" * 5000}),
        (INPUTS, OUTPUTS, {"eos_token_id": "²"}),
    ],
)
def test_what_claims_to_be_one_and_is_not_is_refused(
    inputs: dict[str, TensorSpec], outputs: dict[str, TensorSpec], metadata: dict[str, str]
) -> None:
    with pytest.raises(ArtefactRefusedError, match="claims to be a decoder"):
        decoder_of(inputs, outputs, metadata)


class Arithmetic:
    """A decoder by hand: keys hold the tokens, and the next token is the sum of all that the row has, by its mask."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.runs: list[int] = []

    def __call__(self, outputs: Sequence[str], feeds: Mapping[str, Array]) -> list[Array]:
        assert outputs[0] == "logits"
        ids, past = feeds["input_ids"], feeds["past_key_values.0.key"]
        rows, new = ids.shape
        self.runs.append(rows)
        added = np.broadcast_to(ids[:, None, :, None], (rows, HEADS, new, SIZE)).astype(np.float32)
        present = np.concatenate([past, added], axis=2)
        mask = np.ones_like(present[:, 0, :, 0]) if self.fault == "no mask" else feeds["attention_mask"]
        padded = present[:, 0, :, 0] + (1 if self.fault == "no mask" else 0)
        seen = np.cumsum(ids if self.fault == "forgets" else padded * mask, axis=1)[:, -new:]
        if self.fault == "batch":
            seen = seen + rows
        if self.fault == "one at a time" and past.shape[2] and new > 1:
            seen = seen + 1
        logits = np.eye(VOCABULARY, dtype=np.float32)[seen.astype(int) % VOCABULARY]
        if self.fault == "shape":
            present = present[:, :, 1:]
        if self.fault == "logits":
            logits = logits[:, -1]
        if self.fault == "nan":
            logits[:] = np.nan
        return [logits, present, present]


@pytest.mark.parametrize(("fault", "company"), [("", Company.ANY), ("no mask", Company.ALIKE), ("batch", Company.NONE)])
def test_who_may_run_together_is_tried(fault: str, company: Company) -> None:
    decoder = tried(found(), Arithmetic(fault))
    assert (decoder.company, decoder.vocabulary) == (company, VOCABULARY)


@pytest.mark.parametrize(("fault", "in_pieces"), [("", True), ("one at a time", False)])
def test_whether_a_prompt_may_be_read_in_pieces_is_tried(fault: str, in_pieces: bool) -> None:
    assert tried(found(), Arithmetic(fault)).in_pieces is in_pieces


@pytest.mark.parametrize("fault", ["forgets", "shape", "logits", "nan"])
def test_one_that_does_not_decode_is_refused(fault: str) -> None:
    with pytest.raises(ArtefactRefusedError, match="claims to be a decoder"):
        tried(found(), Arithmetic(fault))


def test_rows_of_different_lengths_are_padded_on_the_left() -> None:
    decoder, run = tried(found(), Arithmetic()), Arithmetic()
    first, _ = read_prompts(decoder, run, [[1, 2, 3]])
    second, logits = read_prompts(decoder, run, [[5]])
    assert logits[0].argmax() == 5
    both = first.joined(second)
    together, logits = read_prompts(decoder, run, [[1, 2, 3], [5]])
    assert logits.argmax(axis=1).tolist() == [6, 5]
    for joined, read in zip(both.tensors, together.tensors, strict=True):
        np.testing.assert_array_equal(joined, read)
    assert [tensor.shape for tensor in both.tensors] == [(2, HEADS, 3, SIZE)] * 2
    both, logits = next_step(decoder, run, both, [4, 2])
    assert (both.lengths, logits.argmax(axis=1).tolist()) == ([4, 2], [10, 7])
    left = both.only([1])
    assert (left.lengths, left.tensors[0].shape, left.tensors[0][0, 0, :, 0].tolist()) == (
        [2],
        (1, HEADS, 2, SIZE),
        [5.0, 2.0],
    )


def test_a_model_that_changes_its_mind_fails(monkeypatch: Any) -> None:
    decoder, run = tried(found(), Arithmetic()), Arithmetic()
    cache, _ = read_piece(decoder, run, None, [1])
    monkeypatch.setattr(run, "fault", "shape")
    with pytest.raises(InferenceFailedError, match="cache of shape"):
        next_step(decoder, run, cache, [1])
