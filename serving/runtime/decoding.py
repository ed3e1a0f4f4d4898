"""Runs decoders: rows that are generated, their cache, and the trial that shows who may run with whom. Blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tiercel.core.errors import ArtefactRefusedError, InferenceFailedError, TiercelError
from tiercel.serving.runtime.decoder import ATTENTION_MASK, INPUT_IDS, POSITION_IDS, Company, Decoder
from tiercel.serving.tensors import Array

Run = Callable[[Sequence[str], Mapping[str, Array]], list[Array]]
"""From names of outputs and inputs by name to outputs; raises TiercelError."""

# As far as two ways to compute the same logits may lie apart, as a fraction of the largest one. FP32 in another order
# is apart by 1e-6; what a neighbour leaks is not small.
_SAME: Final = {2: 2e-2, 4: 1e-3}
# A file that forgets its cache is apart by the whole; quantised ones are by some hundredths.
_REMEMBERS: Final = 0.1
_TRIED_TOKENS: Final = 5


@dataclass(slots=True)
class Cache:
    """Keys and values of some rows, each of which ends on the right: shorter ones have padding on the left."""

    lengths: list[int]  # tokens of each row
    tensors: list[Array]  # in the order of ``Decoder.pasts``, [rows, heads, tokens of the longest, head size]

    def joined(self, other: Cache) -> Cache:
        """The rows of both, these first."""
        most = max(*self.lengths, *other.lengths)
        pairs = zip(self._padded(most), other._padded(most), strict=True)
        return Cache([*self.lengths, *other.lengths], [np.concatenate(pair) for pair in pairs])

    def only(self, rows: Sequence[int]) -> Cache:
        """Some of the rows, with no more padding than they need; at least one."""
        lengths = [self.lengths[row] for row in rows]
        cut = max(self.lengths) - max(lengths)
        return Cache(lengths, [np.ascontiguousarray(each[list(rows), :, cut:]) for each in self.tensors])

    def _padded(self, length: int) -> list[Array]:
        missing = length - max(self.lengths)
        if not missing:
            return self.tensors
        return [np.pad(each, ((0, 0), (0, 0), (missing, 0), (0, 0))) for each in self.tensors]


def read_prompts(decoder: Decoder, run: Run, prompts: Sequence[Sequence[int] | Array]) -> tuple[Cache, Array]:
    """Read whole prompts of one token or more together.

    Shorter ones are padded on the right, where no token of theirs looks: on the left, a token of padding would look at
    nothing at all, of which many models make no number.

    Returns:
        The cache of the rows, and the logits of what comes next, [rows, vocabulary].

    Raises:
        TiercelError: The model fails, or does not give what a decoder gives.
    """
    lengths = [len(prompt) for prompt in prompts]
    rows, longest = len(prompts), max(lengths)
    ids = np.zeros((rows, longest), decoder.ids)
    for row, prompt in enumerate(prompts):
        ids[row, : lengths[row]] = prompt
    seen = np.arange(longest) < np.array(lengths)[:, None]
    tensors, logits = _ran(decoder, run, Cache([0] * rows, decoder.empty(rows)), ids, seen)
    if min(lengths) < longest:
        tensors = [_on_the_right(each, lengths) for each in tensors]
    return Cache(lengths, tensors), logits[np.arange(rows), np.array(lengths) - 1]


def _on_the_right(tensor: Array, lengths: Sequence[int]) -> Array:
    """Rows that begin on the left, moved so that they end on the right."""
    moved = np.zeros_like(tensor)
    for row, length in enumerate(lengths):
        moved[row, :, tensor.shape[2] - length :] = tensor[row, :, :length]
    return moved


def read_piece(decoder: Decoder, run: Run, cache: Cache | None, piece: Sequence[int] | Array) -> tuple[Cache, Array]:
    """Read the next tokens of one row's prompt, one or more; None for a cache of none before.

    Returns:
        The cache with them, and the logits of what comes next, [1, vocabulary].

    Raises:
        TiercelError: The model fails, or does not give what a decoder gives.
    """
    cache = Cache([0], decoder.empty()) if cache is None else cache
    return _added(decoder, run, cache, np.array([piece], decoder.ids))


def next_step(decoder: Decoder, run: Run, cache: Cache, tokens: Sequence[int]) -> tuple[Cache, Array]:
    """Add one token to each row.

    Returns:
        The cache with them, and the logits of what comes next, [rows, vocabulary].

    Raises:
        TiercelError: The model fails, or does not give what a decoder gives.
    """
    return _added(decoder, run, cache, np.array(tokens, decoder.ids)[:, None])


def _added(decoder: Decoder, run: Run, cache: Cache, ids: Array) -> tuple[Cache, Array]:
    new = ids.shape[1]
    total = max(cache.lengths) + new
    seen = np.arange(total) >= total - new - np.array(cache.lengths)[:, None]
    tensors, logits = _ran(decoder, run, cache, ids, seen)
    return Cache([length + new for length in cache.lengths], tensors), logits[:, -1]


def _ran(decoder: Decoder, run: Run, cache: Cache, ids: Array, seen: Array) -> tuple[list[Array], Array]:
    """The cache with more tokens, and the logits of each of them; ``seen`` is [rows, past + new], false for padding."""
    rows, new = ids.shape
    total = seen.shape[1]
    feeds = dict(zip(decoder.pasts, cache.tensors, strict=True))
    feeds[INPUT_IDS] = ids
    if decoder.mask:
        feeds[ATTENTION_MASK] = seen.astype(decoder.ids)
    if decoder.positions:
        feeds[POSITION_IDS] = (np.array(cache.lengths)[:, None] + np.arange(new)).astype(decoder.ids)
    logits, *presents = run(decoder.outputs, feeds)
    for present, (heads, size) in zip(presents, decoder.heads, strict=True):
        if present.shape != (rows, heads, total, size) or present.dtype != decoder.cache:
            raise InferenceFailedError(
                f"the model gave a cache of shape {list(present.shape)}, and {[rows, heads, total, size]} is what a "
                "decoder gives here"
            )
    if logits.ndim != 3 or logits.shape[:2] != (rows, new) or not logits.shape[2]:
        raise InferenceFailedError(
            f"the model gave logits of shape {list(logits.shape)}; the first two axes should be {[rows, new]}"
        )
    if decoder.vocabulary not in (0, logits.shape[2]):
        raise InferenceFailedError(f"the model gave logits of {logits.shape[2]} ids instead of {decoder.vocabulary}")
    return presents, logits


def tried(decoder: Decoder, run: Run) -> Decoder:
    """Run a decoder a few times, to see whether it remembers, and which rows may run together.

    What its file says of that is not believed: an export that ignores its mask, or counts positions from the length of
    the past, gives rows other answers beside longer ones; one that is quantised as it runs gives others in any company.

    Raises:
        ArtefactRefusedError: It does not run as a decoder, or does not remember what it was told.
    """
    try:
        return _tried(decoder, run)
    except ArtefactRefusedError:
        raise
    except TiercelError as error:
        raise ArtefactRefusedError(f"it claims to be a decoder with a key-value cache, but {error.message}") from error


def _tried(decoder: Decoder, run: Run) -> Decoder:
    _, logits = read_prompts(decoder, run, [[0]])
    vocabulary = logits.shape[1]
    ids = [(1 + 7 * place) % vocabulary for place in range(_TRIED_TOKENS)]
    short, _ = read_prompts(decoder, run, [ids[:2]])
    alone = next_step(decoder, run, short, [ids[2]])[1][0]
    whole = read_prompts(decoder, run, [ids[:3]])[1][0]
    if not _is_close(alone, whole, _REMEMBERS):
        raise ArtefactRefusedError(
            "it claims to be a decoder with a key-value cache, but answers otherwise with a cache than without; the "
            "past has to come before the new tokens, and be in the present"
        )
    return decoder.tried(vocabulary, _company(decoder, run, ids, alone), _reads_pieces(decoder, run, ids))


def _company(decoder: Decoder, run: Run, ids: Sequence[int], alone: Array) -> Company:
    """Who may run with whom: a row of two tokens is read, and goes on, beside one of two, and beside one of four."""
    company = Company.NONE
    for wider, other in ((Company.ALIKE, ids[3:]), (Company.ANY, ids[1:])):
        if wider is Company.ANY and not decoder.mask:
            break
        try:
            both, _ = read_prompts(decoder, run, [other, ids[:2]])
            beside = next_step(decoder, run, both, [ids[0], ids[2]])[1][1]
        except TiercelError:
            break
        if not _is_close(alone, beside, _SAME[decoder.cache.itemsize]):
            break
        company = wider
    return company


def _reads_pieces(decoder: Decoder, run: Run, ids: Sequence[int]) -> bool:
    """Whether several tokens after some others see what they should; some exports have only one token follow."""
    whole = read_prompts(decoder, run, [ids])[1][0]
    try:
        first, _ = read_piece(decoder, run, None, ids[:2])
        return _is_close(whole, read_piece(decoder, run, first, ids[2:])[1][0], _REMEMBERS)
    except TiercelError:
        return False


def _is_close(one: Array, other: Array, tolerance: float) -> bool:
    first, second = one.astype(np.float64), other.astype(np.float64)
    return bool(np.max(np.abs(first - second)) <= tolerance * max(1e-6, float(np.max(np.abs(first)))))  # NaN is not
