"""Decoders with a key-value cache, recognised by what they take and give in the form that others use, too. Pure.

``input_ids`` [rows, new], ``attention_mask`` [rows, past + new], ``position_ids`` [rows, new], and
``past_key_values.N.key`` and ``.value`` [rows, heads, past, head size] of each layer give ``logits`` [rows, new,
vocabulary] and ``present.N.key`` and ``.value``. A prompt is read with a past of no tokens, so one graph does both.
The names are those of Hugging Face's exports (optimum, 2022, and the builder of onnxruntime-genai, 2024).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

import numpy as np

from tiercel.core.errors import ArtefactRefusedError
from tiercel.serving.runtime.tokenizer import Tokenizer
from tiercel.serving.tensors import Array, TensorSpec

INPUT_IDS: Final = "input_ids"
TEXT_INPUT: Final = "text_input"  # in place of ids, where there is a tokenizer
ATTENTION_MASK: Final = "attention_mask"
POSITION_IDS: Final = "position_ids"
LOGITS: Final = "logits"
_PAST = re.compile(r"past_key_values\.(0|[1-9][0-9]{0,3})\.(key|value)")
_CLAIM = "it claims to be a decoder with a key-value cache, but "
_KINDS: Final = ("key", "value")
_MOST_CONTEXT: Final = 2**24
# Bytes of keys and values of one token that a model may have: some thousand layers' of the usual size.
_MOST_TOKEN_BYTES: Final = 2**24


class Company(Enum):
    """Which rows may run together without one's answer depending on the others."""

    ANY = "any"  # of whatever length: shorter ones are padded on the left
    ALIKE = "alike"  # those that have as many tokens
    NONE = "none"  # each runs alone


@dataclass(frozen=True, slots=True)
class Decoder:
    """What a decoder takes and gives, as its file says it."""

    layers: int  # how many have a cache
    ids: np.dtype[np.generic]  # type of ids, mask and positions
    mask: bool  # whether it takes an attention mask
    positions: bool  # whether it takes positions
    # Heads and size of a head of each of :attr:`pasts`.
    heads: tuple[tuple[int, int], ...]
    cache: np.dtype[np.generic]  # type of keys and values
    end_token: int | None = None  # the id that ends an answer
    context: int | None = None  # tokens that it can remember; None where its file does not say
    tokenizer: Tokenizer | None = None  # between texts and its ids; None for none, or none yet
    vocabulary: int = 0  # how many ids there are; 0 until it was tried
    company: Company = Company.NONE  # who may run together; found out by trying
    in_pieces: bool = False  # whether a prompt may be read piece by piece; likewise

    @property
    def pasts(self) -> tuple[str, ...]:
        """Names of the inputs that are the cache."""
        return tuple(f"past_key_values.{name}" for name in _names(self.layers))

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the logits, and of the cache after them, in the order of :attr:`pasts`."""
        return (LOGITS, *(f"present.{name}" for name in _names(self.layers)))

    @property
    def token_bytes(self) -> int:
        """Bytes that keys and values of one token take."""
        return sum(heads * size for heads, size in self.heads) * self.cache.itemsize

    def empty(self, rows: int = 1) -> list[Array]:
        """A cache of no tokens."""
        return [np.zeros((rows, heads, 0, size), self.cache) for heads, size in self.heads]

    def tried(self, vocabulary: int, company: Company, in_pieces: bool) -> Decoder:
        """The same, with what trying it showed."""
        return replace(self, vocabulary=vocabulary, company=company, in_pieces=in_pieces)

    def speaking(self, tokenizer: Tokenizer | None) -> Decoder:
        """The same, with its tokenizer."""
        return replace(self, tokenizer=tokenizer)


def decoder_of(
    inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec], metadata: Mapping[str, str]
) -> Decoder | None:
    """The decoder that a model is by what it takes and gives; None for any other model.

    What takes something beside the names above, such as the states of an encoder, is another model.

    Args:
        inputs: Specifications by name.
        outputs: Likewise.
        metadata: The file's ``metadata_props``: ``eos_token_id`` and ``context_length`` are looked at.

    Raises:
        ArtefactRefusedError: It takes exactly what a decoder does, but not in shapes and types that belong together.
    """
    numbers = {int(past[1]) for name in inputs if (past := _PAST.fullmatch(name))}
    rest = {name for name in inputs if not _PAST.fullmatch(name)}
    if not numbers or INPUT_IDS not in rest or not rest <= {INPUT_IDS, ATTENTION_MASK, POSITION_IDS}:
        return None
    layers = len(numbers)
    pasts = [f"past_key_values.{name}" for name in _names(layers)]
    presents = [f"present.{name}" for name in _names(layers)]
    for name in (*pasts, LOGITS, *presents):
        if name not in inputs and name not in outputs:
            raise ArtefactRefusedError(f"{_CLAIM}it has no '{name}'")
    cache = inputs[pasts[0]].data_type
    heads = [_heads(inputs[past], outputs[present]) for past, present in zip(pasts, presents, strict=True)]
    _check_types(inputs, rest, outputs)
    if cache.name not in {"FP32", "FP16"} or any(inputs[name].data_type is not cache for name in pasts):
        raise ArtefactRefusedError(f"{_CLAIM}keys and values are not all FP32 or all FP16")
    found = Decoder(
        layers=layers,
        ids=inputs[INPUT_IDS].data_type.dtype,
        mask=ATTENTION_MASK in rest,
        positions=POSITION_IDS in rest,
        heads=tuple(heads),
        cache=cache.dtype,
        end_token=_number(metadata, "eos_token_id", 0),
        context=_number(metadata, "context_length", 1),
    )
    if found.token_bytes > _MOST_TOKEN_BYTES:
        raise ArtefactRefusedError(f"{_CLAIM}one token's keys and values take {found.token_bytes} bytes")
    return found


def _names(layers: int) -> Iterator[str]:
    return (f"{layer}.{kind}" for layer in range(layers) for kind in _KINDS)


def _heads(past: TensorSpec, present: TensorSpec) -> tuple[int, int]:
    shapes: Sequence[tuple[int, ...]] = (past.shape, present.shape)
    if any(len(shape) != 4 or shape[0] != -1 for shape in shapes) or past.shape[2] != -1:
        raise ArtefactRefusedError(
            f"{_CLAIM}'{past.name}' and '{present.name}' are not [rows, heads, tokens, head size] with free rows and "
            "a free length"
        )
    _, heads, _, size = past.shape
    if heads < 1 or size < 1:
        raise ArtefactRefusedError(f"{_CLAIM}'{past.name}' does not say how many heads it has, and of what size")
    if any(said not in (-1, given) for said, given in zip(present.shape[1::2], (heads, size), strict=True)):
        raise ArtefactRefusedError(f"{_CLAIM}'{present.name}' has other heads than '{past.name}'")
    return heads, size


def _check_types(inputs: Mapping[str, TensorSpec], rest: set[str], outputs: Mapping[str, TensorSpec]) -> None:
    kind = inputs[INPUT_IDS].data_type
    for name in sorted(rest):
        spec = inputs[name]
        if spec.data_type is not kind or kind.name not in {"INT64", "INT32"} or spec.shape != (-1, -1):
            raise ArtefactRefusedError(f"{_CLAIM}'{name}' is not INT64 [rows, tokens] with both free")
    if outputs[LOGITS].data_type.name not in {"FP32", "FP16"} or len(outputs[LOGITS].shape) != 3:
        raise ArtefactRefusedError(f"{_CLAIM}'{LOGITS}' is not FP32 or FP16 [rows, tokens, vocabulary]")


def _number(metadata: Mapping[str, str], name: str, least: int) -> int | None:
    said = metadata.get(name)
    if said is None:
        return None
    if not (said.isascii() and said.isdigit()) or len(said) > 8 or not least <= int(said) <= _MOST_CONTEXT:
        raise ArtefactRefusedError(
            f"{_CLAIM}its metadata '{name}' is {said[:40]!r}, which is no whole number from {least}"
        )
    return int(said)
