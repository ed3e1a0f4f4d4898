"""Rows that are generated together, one step at a time. Blocks; one thread at a time has it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from tiercel.core.errors import TiercelError
from tiercel.serving.generation.prompts import Prompts
from tiercel.serving.generation.row import Row, Stepped
from tiercel.serving.runtime.decoder import Company, Decoder
from tiercel.serving.runtime.decoding import Cache, Run, next_step
from tiercel.serving.tensors import Array


@dataclass(slots=True)
class _Group:
    """Rows that run together, in the order of their cache."""

    rows: list[Row]
    cache: Cache


class Batch:
    """The rows that have begun, with what the model remembers of them.

    Args:
        decoder: The model.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._groups: list[_Group] = []
        self._prompts = Prompts(decoder)

    def step(self, run: Run, new: Sequence[Row]) -> Stepped:
        """One token for each row that has not ended meanwhile, and some tokens of prompts; their rows begin after them.

        Args:
            run: Runs the model.
            new: Rows to let in.
        """
        begin = time.perf_counter()
        stepped: Stepped = []
        self._groups = [kept for group in self._groups if (kept := _without_ended(group)) is not None]
        self._groups = [moved for group in self._groups for moved in self._advanced(run, group, stepped)]
        self._prompts.add(new)
        for rows, cache, logits in self._prompts.read(run, stepped):
            for group in _chosen(_Group(rows, cache), logits, stepped):
                self._let_in(group)
        seconds = time.perf_counter() - begin
        for row, _ in stepped:
            row.run_seconds += seconds
        return stepped

    def _let_in(self, new: _Group) -> None:
        company, length = self._decoder.company, new.cache.lengths[0]
        for group in self._groups:
            if company is Company.ANY or (company is Company.ALIKE and group.cache.lengths[0] == length):
                group.cache = group.cache.joined(new.cache)
                group.rows += new.rows
                return
        self._groups.append(new)

    def _advanced(self, run: Run, group: _Group, stepped: Stepped) -> list[_Group]:
        """The group one token on; of one that fails together each row runs alone: only the guilty one fails."""
        try:
            cache, logits = next_step(self._decoder, run, group.cache, [row.last for row in group.rows])
        except TiercelError as error:
            if len(group.rows) == 1:
                stepped.append((group.rows[0], error))
                return []
            alone = [_Group([row], group.cache.only([place])) for place, row in enumerate(group.rows)]
            left = [moved for each in alone for moved in self._advanced(run, each, stepped)]
            return _together(left)
        return _chosen(_Group(group.rows, cache), logits, stepped)


def _chosen(group: _Group, logits: Array, stepped: Stepped) -> list[_Group]:
    places: list[int] = []
    for place, row in enumerate(group.rows):
        try:
            stepped.append((row, row.choose(logits[place])))
            places.append(place)
        except TiercelError as error:
            stepped.append((row, error))
    kept = _kept(group, places)
    return [] if kept is None else [kept]


def _together(groups: list[_Group]) -> list[_Group]:
    """What ran together runs together again."""
    if len(groups) < 2:
        return groups
    first, *others = groups
    for other in others:
        first.cache = first.cache.joined(other.cache)
        first.rows += other.rows
    return [first]


def _without_ended(group: _Group) -> _Group | None:
    return _kept(group, [place for place, row in enumerate(group.rows) if not row.ended])


def _kept(group: _Group, places: list[int]) -> _Group | None:
    if len(places) == len(group.rows):
        return group
    return _Group([group.rows[place] for place in places], group.cache.only(places)) if places else None
