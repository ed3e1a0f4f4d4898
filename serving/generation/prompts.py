"""Prompts that are being read, a bounded number of tokens between two steps of those that were. Blocks.

Long ones are read in pieces in turn (chunked prefill; Agrawal et al., Sarathi, 2023), short ones together. Where a
piece ends depends on its prompt alone, so that company changes no more of an answer than the order of additions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tiercel.core.errors import TiercelError
from tiercel.serving.generation.row import Row, Stepped
from tiercel.serving.runtime.decoder import Company, Decoder
from tiercel.serving.runtime.decoding import Cache, Run, read_piece, read_prompts
from tiercel.serving.tensors import Array

PIECE: Final = 128
"""Tokens of one prompt that are read at a time, where the model can go on from there."""
_BETWEEN_STEPS: Final = 2 * PIECE
# A run of its own costs as much as some 25 tokens more in another's: the model's weights are read again.
_MOST_PADDING: Final = 16

Read = tuple[list[Row], Cache, Array]
"""Rows whose prompts were read to the end, their cache, and the logits of what comes next."""


@dataclass(slots=True)
class _Reading:
    """A prompt of which some was read."""

    row: Row
    cache: Cache | None = None

    @property
    def read(self) -> int:
        return 0 if self.cache is None else self.cache.lengths[0]


class Prompts:
    """See the module.

    Args:
        decoder: The model.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._readings: deque[_Reading] = deque()

    def add(self, rows: Sequence[Row]) -> None:
        """Rows whose prompts are to be read, after those that are."""
        self._readings.extend(_Reading(row) for row in rows)

    def read(self, run: Run, failed: Stepped) -> Iterator[Read]:
        """Read as much as may be read between two steps, and at least a piece; gives those that are complete.

        Args:
            run: Runs the model.
            failed: Where rows go whose prompts the model fails on.
        """
        whole, longer = self._due()
        for rows in _together(whole, self._decoder.company):
            yield from self._whole(run, rows, failed)
        for reading in longer:
            yield from self._on(run, reading, failed)

    def _due(self) -> tuple[list[Row], list[_Reading]]:
        """Whose turn it is: rows whose prompts are read in one go, and those of which a piece is read."""
        whole: list[Row] = []
        longer: list[_Reading] = []
        tokens = 0
        while self._readings:
            reading = self._readings[0]
            if not reading.row.ended:
                length = self._next(reading)
                if tokens and tokens + length > _BETWEEN_STEPS:
                    break
                tokens += length
                if length == len(reading.row.prompt):
                    whole.append(reading.row)
                else:
                    longer.append(reading)
            self._readings.popleft()
        return whole, longer

    def _next(self, reading: _Reading) -> int:
        left = len(reading.row.prompt) - reading.read
        return min(left, PIECE) if self._decoder.in_pieces else left

    def _whole(self, run: Run, rows: list[Row], failed: Stepped) -> Iterator[Read]:
        try:
            read = read_prompts(self._decoder, run, [row.prompt for row in rows])
        except TiercelError as error:
            if len(rows) == 1:
                failed.append((rows[0], error))
                return
            for row in rows:  # only the guilty one fails
                yield from self._whole(run, [row], failed)
        else:
            yield rows, *read

    def _on(self, run: Run, reading: _Reading, failed: Stepped) -> Iterator[Read]:
        row, begin = reading.row, reading.read
        piece = row.prompt[begin : begin + self._next(reading)]
        try:
            reading.cache, logits = read_piece(self._decoder, run, reading.cache, piece)
        except TiercelError as error:
            failed.append((row, error))
            return
        if reading.read == len(row.prompt):
            yield [row], reading.cache, logits
        else:
            self._readings.append(reading)


def _together(rows: list[Row], company: Company) -> list[list[Row]]:
    """Rows whose prompts are read in one run: as long as each other, or nearly where the model can be padded."""
    if company is Company.NONE:
        return [[row] for row in rows]
    padding = _MOST_PADDING if company is Company.ANY else 0
    found: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: -len(row.prompt)):
        if found and len(found[-1][0].prompt) - len(row.prompt) <= padding:
            found[-1].append(row)
        else:
            found.append([row])
    return found
