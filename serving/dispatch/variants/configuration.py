"""``ENDPOINT/variants.json`` in the repository: which models answer for an endpoint, and how they are chosen.

::

    {"variants": [{"name": "digits-small", "accuracy": 0.91}, "digits-large"],
     "objective_seconds": 0.05, "utility": "soft", "scheduler": "heuristic"}

A variant is called like its model, unless ``model`` names another one: ``{"name": "small", "model": "_digits.small"}``
is how deliveries of jobs are listed. A variant's accuracy is that of its live version, ``MODEL/VERSION/accuracy.json``
with ``{"accuracy": 0.97}``, else the one given here. All functions that read files block, for as long as a small file
takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from tiercel.core.cheap_variants import CHEAP, VariantKind
from tiercel.core.errors import ArtefactRefusedError, InvalidRequestError
from tiercel.core.model_files import VARIANTS_FILE
from tiercel.serving.models import repository
from tiercel.serving.models.accuracy import is_fraction, read_object
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.scheduling.interface import Scheduler
from tiercel.serving.scheduling.registry import DEFAULT, SCHEDULERS
from tiercel.serving.scheduling.static import StaticScheduler
from tiercel.serving.scheduling.table import TableScheduler
from tiercel.serving.scheduling.utility import FORMS, Utility, utility

ENDPOINT_VERSION = 1
"""Calls and the index speak of versions; an endpoint's configuration counts as its only one."""

MAX_VARIANTS = 16
DEFAULT_OBJECTIVE = 1.0
"""Seconds of delay that a model with cheap variants aims at while nobody has said what is wanted."""
_FIELDS = {"variants", "objective_seconds", "utility", "steepness", "scheduler", "static_variant"}


@dataclass(frozen=True, slots=True)
class Variant:
    """One that may answer."""

    name: str  # what answers call it
    model: str  # the model of the repository
    accuracy: float | None = None  # where it was given
    kind: VariantKind = VariantKind.FP32  # which of those that its model's version answers as

    def of(self, live: LoadedVersion | None) -> LoadedVersion | None:
        """What answers of its model's live version; None where there is none."""
        return None if live is None else live.by_kind.get(self.kind)


@dataclass(frozen=True, slots=True)
class Configuration:
    """An endpoint's."""

    variants: tuple[Variant, ...]  # those that may answer; names and models are unique
    objective: float  # seconds of delay aimed at
    utility: Utility  # what an answer is worth
    scheduler: str = DEFAULT  # name of the scheduler
    static_variant: str | None = None  # the one that the static scheduler takes; the most accurate if None

    def decides_like(self, other: Configuration) -> bool:
        """Whether a scheduler that was made for one will do for the other."""
        return (self.scheduler, self.static_variant) == (other.scheduler, other.static_variant)

    def make_scheduler(self, solver: Executor) -> Scheduler:
        """A new scheduler for the endpoint.

        Args:
            solver: Where it may work out what takes longer than a decision may.
        """
        if self.scheduler == "static":
            return StaticScheduler(self.static_variant)
        if self.scheduler == "table":
            return TableScheduler(solver)
        return SCHEDULERS[self.scheduler]()


def of_one_model(name: str) -> Configuration:
    """What answers for a model whose versions have cheap variants: all that there are, of whichever version is live."""
    cheap = (Variant(kind.value, name, kind=kind) for kind in CHEAP)
    variants = (Variant(VariantKind.FP32.value, name, accuracy=1.0), *cheap)
    return Configuration(variants, DEFAULT_OBJECTIVE, utility("soft", None))


def read(folder: Path) -> Configuration | None:
    """The configuration of the endpoint in ``folder``, or None when it has none.

    Raises:
        ArtefactRefusedError: It is wrong; the message names the field.
    """
    try:
        content = read_object(folder / VARIANTS_FILE)
    except FileNotFoundError:
        return None
    if any(repository.is_version(entry.name) for entry in folder.iterdir()):
        raise _wrong("it lies beside versions; a name is either a model's, with versions, or an endpoint's")
    return checked(content)


def checked(content: Mapping[str, Any]) -> Configuration:
    """A configuration from JSON.

    Raises:
        ArtefactRefusedError: It is wrong; the message names the field.
    """
    unknown = set(content) - _FIELDS
    if unknown:
        raise _wrong(f"field '{min(unknown)[:100]}' is unknown; there are {', '.join(sorted(_FIELDS))}")
    variants = _variants(content.get("variants"))
    objective = content.get("objective_seconds")
    if not _is_number(objective) or not 1e-4 <= objective <= 60.0:
        raise _wrong("objective_seconds must be a number of seconds from 0.0001 to 60")
    form = content.get("utility", "soft")
    if form not in FORMS:
        raise _wrong(f"utility must be one of {', '.join(FORMS)}")
    steepness = content.get("steepness")
    if steepness is not None and (not _is_number(steepness) or not 0.0 < steepness <= 1000.0):
        raise _wrong("steepness must be a number above 0 and at most 1000, or be left out")
    scheduler = content.get("scheduler", DEFAULT)
    if not isinstance(scheduler, str) or scheduler not in SCHEDULERS:
        raise _wrong(f"scheduler must be one of {', '.join(SCHEDULERS)}")
    static = content.get("static_variant")
    if static is not None and (scheduler != "static" or static not in {each.name for each in variants}):
        raise _wrong("static_variant must be one of the variants, and scheduler must be static")
    return Configuration(variants, float(objective), utility(form, steepness), scheduler, static)


def _variants(entries: object) -> tuple[Variant, ...]:
    if not isinstance(entries, list) or not 1 <= len(entries) <= MAX_VARIANTS:
        raise _wrong(f"variants must be a list of 1 to {MAX_VARIANTS} models")
    variants: list[Variant] = []
    for index, entry in enumerate(entries):
        variant = _variant(entry, f"variants[{index}]")
        if any(variant.name == other.name or variant.model == other.model for other in variants):
            raise _wrong(f"variants[{index}]: '{variant.name}' or its model is named twice")
        variants.append(variant)
    return tuple(variants)


def _variant(entry: object, where: str) -> Variant:
    content: Any = entry if isinstance(entry, dict) else {"name": entry}
    if not {"name"} <= set(content) <= {"name", "model", "accuracy"}:
        raise _wrong(f'{where} must be a model\'s name or {{"name": ..., "model": ..., "accuracy": ...}}')
    name, accuracy = content["name"], content.get("accuracy")
    model = content.get("model", name)
    for each in (name, model):
        if not isinstance(each, str):
            raise _wrong(f"{where}: a model's name is expected")
        try:
            repository.checked_name(each)
        except InvalidRequestError as error:
            raise _wrong(f"{where}: {error.message}") from error
    if accuracy is not None and not is_fraction(accuracy):
        raise _wrong(f"{where}.accuracy must be a fraction above 0 and at most 1")
    return Variant(name, model, accuracy if accuracy is None else float(accuracy))


def _is_number(value: object) -> TypeGuard[float]:
    return type(value) in {int, float}


def _wrong(message: str) -> ArtefactRefusedError:
    return ArtefactRefusedError(f"{VARIANTS_FILE}: {message}")
