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


def read_prompt(decoder: Decoder, run: Run, prompt: Sequence[int] | Array) -> tuple[Cache, Array]:
    """Read a prompt of one token or more.

    Returns:
        The cache of one row, and the logits of what comes next, [1, vocabulary].

    Raises:
        TiercelError: The model fails, or does not give what a decoder gives.
    """
    return _ran(decoder, run, Cache([0], decoder.empty()), np.array([prompt], decoder.ids))


def next_step(decoder: Decoder, run: Run, cache: Cache, tokens: Sequence[int]) -> tuple[Cache, Array]:
    """Add one token to each row.

    Returns:
        The cache with them, and the logits of what comes next, [rows, vocabulary].

    Raises:
        TiercelError: The model fails, or does not give what a decoder gives.
    """
    return _ran(decoder, run, cache, np.array(tokens, decoder.ids)[:, None])


def _ran(decoder: Decoder, run: Run, cache: Cache, ids: Array) -> tuple[Cache, Array]:
    rows, new = ids.shape
    lengths = np.array(cache.lengths)[:, None]
    total = max(cache.lengths) + new
    feeds = dict(zip(decoder.pasts, cache.tensors, strict=True))
    feeds[INPUT_IDS] = ids
    if decoder.mask:
        feeds[ATTENTION_MASK] = (np.arange(total) >= total - new - lengths).astype(decoder.ids)
    if decoder.positions:
        feeds[POSITION_IDS] = (lengths + np.arange(new)).astype(decoder.ids)
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
    return Cache([length + new for length in cache.lengths], presents), logits[:, -1]


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
    _, logits = read_prompt(decoder, run, [0])
    vocabulary = logits.shape[1]
    ids = [(1 + 7 * place) % vocabulary for place in range(_TRIED_TOKENS)]
    short, _ = read_prompt(decoder, run, ids[:2])
    alone = next_step(decoder, run, short, [ids[2]])[1][0]
    whole = read_prompt(decoder, run, ids[:3])[1][0]
    if not _is_close(alone, whole, _REMEMBERS):
        raise ArtefactRefusedError(
            "it claims to be a decoder with a key-value cache, but answers otherwise with a cache than without; the "
            "past has to come before the new tokens, and be in the present"
        )
    longer, _ = read_prompt(decoder, run, ids[1:])
    like, _ = read_prompt(decoder, run, ids[3:])
    company = Company.NONE
    for wider, other in ((Company.ALIKE, like), (Company.ANY, longer)):
        if wider is Company.ANY and not decoder.mask:
            break
        try:
            beside = next_step(decoder, run, other.joined(short), [ids[0], ids[2]])[1][1]
        except TiercelError:
            break
        if not _is_close(alone, beside, _SAME[decoder.cache.itemsize]):
            break
        company = wider
    return decoder.tried(vocabulary, company)


def _is_close(one: Array, other: Array, tolerance: float) -> bool:
    first, second = one.astype(np.float64), other.astype(np.float64)
    return bool(np.max(np.abs(first - second)) <= tolerance * max(1e-6, float(np.max(np.abs(first)))))  # NaN is not
