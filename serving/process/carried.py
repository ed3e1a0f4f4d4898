"""What a process tells the one that follows beside versions and shares: its trials, and the delays of the last minute.

It is of use and not needed, so nothing here fails a hand-over: what is missing, of another release or does not make
sense is left out. Counters are not carried; they begin anew, as those who read them expect of a new process.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

import numpy as np

from tiercel.serving.accounting.delays import BUCKETS, SLOT_SECONDS, WINDOWS, History, Slot
from tiercel.serving.canary_plan import CanaryPlan
from tiercel.serving.loading.trial_supervision import CarriedTrial
from tiercel.serving.models.canary.judgement import Comparison, Counts
from tiercel.serving.models.canary.trials import Progress

_logger = logging.getLogger(__name__)

_FORMAT: Final = 1
# Of the delays of all models together; a busy model has some 5 kB.
_MAX_BYTES: Final = 4 * 1024**2

Json = dict[str, Any]
Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class Carried:
    """What is told."""

    trials: Mapping[str, CarriedTrial]  # those that run, by model
    delays: Mapping[str, History]  # what the windows of models are made of


def write(carried: Carried) -> Json:
    """As JSON; delays of the models that were asked last, as many as there is room for."""
    delays: dict[str, Json] = {}
    room = _MAX_BYTES
    for name, history in sorted(carried.delays.items(), key=lambda item: -item[1].touched):
        content = _history_as_json(history)
        room -= len(json.dumps(content))
        if room < 0:
            _logger.warning("There is no room for the delays of all models: those of some begin anew")
            break
        delays[name] = content
    return {
        "format": _FORMAT,
        "trials": {name: asdict(trial) for name, trial in carried.trials.items()},
        "delays": delays,
    }


def read(content: object, now: float) -> Carried:
    """From JSON, whoever wrote it."""
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        return Carried({}, {})
    delays = _each("delays", content, lambda history: _history(history, now))
    return Carried(_each("trials", content, _trial), delays)


def _each(what: str, content: Json, reader: Callable[[Any], Read]) -> dict[str, Read]:
    """What makes sense of a part."""
    found: dict[str, Read] = {}
    try:
        for name, entry in content[what].items():
            found[name] = reader(entry)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        _logger.warning("Some of the %s of the process before were left out: %r", what, error)
    return found


def _trial(content: Json) -> CarriedTrial:
    progress = content["progress"]
    old, new = Counts(**progress["old"]), Counts(**progress["new"])
    so_far = Progress(float(progress["seconds"]), old, new, Comparison(**progress["comparison"]))
    return CarriedTrial(int(content["version"]), CanaryPlan(**content["plan"]), so_far)


def _history_as_json(history: History) -> Json:
    slots = [None if slot is None else _slot_as_json(slot) for slot in history.slots]
    return {"began": history.began, "ends": history.ends, "touched": history.touched, "slots": slots}


def _slot_as_json(slot: Slot) -> Json:
    buckets = np.flatnonzero(slot.counts)
    counts = [buckets.tolist(), slot.counts[buckets].tolist()]
    return {"counts": counts, "on_time": slot.on_time, "failures": slot.failures}


def _history(content: Json, now: float) -> History:
    began, ends, touched = (float(content[name]) for name in ("began", "ends", "touched"))
    if not began <= ends - SLOT_SECONDS <= now <= ends + max(WINDOWS):
        raise ValueError("its clock is another one")
    return History(began, ends, touched, tuple(None if slot is None else _slot(slot) for slot in content["slots"]))


def _slot(content: Json) -> Slot:
    buckets, counts = content["counts"]
    all_counts = np.zeros(BUCKETS, np.int64)
    all_counts[buckets] = counts
    return Slot(all_counts, int(content["on_time"]), int(content["failures"]))
