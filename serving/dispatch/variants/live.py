"""Which variants of an endpoint are live, how accurate they are, and how long they take."""

from __future__ import annotations

import logging
import time
from typing import Any

from tiercel.core.errors import ArtefactRefusedError
from tiercel.serving.dispatch.variants.configuration import Variant
from tiercel.serving.dispatch.variants.live_profile import LiveProfile
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.models.registry import Registry
from tiercel.serving.runtime.engine import Session
from tiercel.serving.scheduling.interface import Profile
from tiercel.serving.tensors import TensorSpec

_logger = logging.getLogger(__name__)

# How often schedulers see what runs took meanwhile: what they work out from profiles costs more than a decision.
_RENEW_SECONDS = 0.5


class Candidate:
    """A variant that is live."""

    __slots__ = ("accuracy", "loaded", "name", "profile")

    def __init__(self, name: str, loaded: LoadedVersion, accuracy: float) -> None:
        self.name = name
        self.loaded = loaded
        self.accuracy = accuracy
        self.profile = LiveProfile(name, accuracy, loaded.session)


class LiveVariants:
    """The variants that may answer now.

    Attributes:
        candidates: What :meth:`current` said last.
        prefixes: By length: the profiles of so many of them, the most accurate first.
    """

    def __init__(self, endpoint: str, variants: tuple[Variant, ...], registry: Registry) -> None:
        self._endpoint = endpoint
        self._variants = variants
        self._registry = registry
        self._live: tuple[LoadedVersion | None, ...] = ()
        self.candidates: list[Candidate] = []
        self._renewed = 0.0
        self.prefixes: list[tuple[Profile, ...]] = []

    def configure(self, variants: tuple[Variant, ...]) -> None:
        """These are the variants from now on; what was measured of those that stay is kept."""
        if variants != self._variants:
            self._variants = variants
            self._live = ()

    def current(self) -> list[Candidate]:
        """The variants that are live now, the most accurate first; a version that was swapped is another candidate."""
        records = [self._registry.known(variant.model) for variant in self._variants]
        live = tuple(
            variant.of(record.live if record is not None else None)
            for variant, record in zip(self._variants, records, strict=True)
        )
        if live != self._live:
            known = {(each.name, each.loaded): each for each in self.candidates}
            found = [
                known.get((variant.name, loaded)) or self._candidate(variant, loaded)
                for variant, loaded in zip(self._variants, live, strict=True)
                if loaded is not None
            ]
            usable = [each for each in found if each is not None]
            agreed = [each for each in usable if _agrees(each, usable[0])]
            self.candidates = sorted(agreed, key=lambda each: -each.accuracy)
            self._live = live
            self._renew(time.perf_counter())
        return self.candidates

    def renew(self, now: float) -> None:
        """Let schedulers see what runs took meanwhile, if that is due."""
        if now - self._renewed > _RENEW_SECONDS:
            self._renew(now)

    def check_fits(self, model: str, session: Session) -> None:
        """Check that a new version of a model may take its place among the others.

        Raises:
            ArtefactRefusedError: It takes or gives something else than the other variants that are live.
        """
        if model not in {variant.model for variant in self._variants}:
            return
        for other in self.current():
            what = _difference(session, other.loaded.session)
            if other.loaded.model != model and what:
                raise ArtefactRefusedError(
                    f"as a variant of endpoint '{self._endpoint}' it must take and give what variant '{other.name}' "
                    f"does, but its {what} differ in name, datatype or shape"
                )

    def _candidate(self, variant: Variant, loaded: LoadedVersion) -> Candidate | None:
        accuracy = variant.accuracy if loaded.accuracy is None else loaded.accuracy
        if accuracy is None:
            _logger.warning(
                "Variant '%s' of endpoint '%s' is left out: its version %s has no accuracy.json, and variants.json "
                "gives no accuracy", variant.name, self._endpoint, loaded.version_text,
            )  # fmt: skip
            return None
        return Candidate(variant.name, loaded, accuracy)

    def _renew(self, now: float) -> None:
        profiles = tuple(each.profile.renew() for each in self.candidates)
        self.prefixes = [profiles[:length] for length in range(len(profiles) + 1)]
        self._renewed = now


def _agrees(one: Candidate, first: Candidate) -> bool:
    """Whether a variant takes and gives what the first one does; if not, that is said in the log."""
    what = _difference(one.loaded.session, first.loaded.session)
    if what:
        _logger.warning("Variant '%s' is left out: its %s differ from those of '%s'", one.name, what, first.name)
    return not what


def _difference(one: Session, other: Session) -> str:
    """What two models do not have in common: ``inputs``, ``outputs``, or empty."""
    if _shapes_of(one.inputs) != _shapes_of(other.inputs):
        return "inputs"
    return "outputs" if _shapes_of(one.outputs) != _shapes_of(other.outputs) else ""


def _shapes_of(specs: Any) -> list[tuple[str, str, tuple[int, ...]]]:
    values: list[TensorSpec] = list(specs.values())
    return sorted((spec.name, spec.data_type.name, tuple(spec.shape)) for spec in values)
