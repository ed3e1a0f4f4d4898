"""What is loaded and what was tried: the state that requests read and only the lifecycle changes. No waiting, no I/O.

A model's record holds at most one live version. A flip replaces it in one assignment; requests that took the old one
keep it until they end, which is what :class:`.LoadedVersion` counts.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from tiercel.core.errors import InvalidRequestError, NotFoundError, UnavailableError
from tiercel.serving.accounting.accounts import UNLIMITED, Account, ModelShare
from tiercel.serving.accounting.delays import WINDOWS, Delays, History
from tiercel.serving.accounting.model_statistics import ModelStatistics
from tiercel.serving.models.canary.trials import Trial
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.models.repository import is_version

_MAX_HISTORY = 32
# Versions whose statistics are kept; each is some 40 lines of metrics.
_MAX_STATISTICS = 8


class VersionState(enum.Enum):
    """State of a version, in the words of the repository extension."""

    LOADING = "LOADING"
    READY = "READY"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """State of a version and, where it is not ready, the reason."""

    state: VersionState
    reason: str = ""


@dataclass(slots=True)
class ModelRecord:
    """All that is known of a model."""

    name: str  # its name
    account: Account  # what its requests took, and what they may take
    live: LoadedVersion | None = None  # the version that answers, or None
    # Status of the versions that were tried, the oldest dropped.
    history: dict[int, VersionStatus] = field(default_factory=dict)
    # Of the versions that were live last, by number: they go on where they were when a version returns.
    statistics: dict[int, ModelStatistics] = field(default_factory=dict)
    swaps: int = 0  # how often a version took the place of another
    refusals: int = 0  # how often a version was tried and did not get live
    trial: Trial | None = None  # a new version that gets a share of the requests, or None
    last_trial: Trial | None = None  # the trial that ended last

    def statistics_of(self, version: int) -> ModelStatistics:
        """The statistics of a version that is about to be live."""
        found = self.statistics.pop(version, None) or ModelStatistics()
        self.statistics[version] = found
        while len(self.statistics) > _MAX_STATISTICS:
            del self.statistics[next(iter(self.statistics))]
        return found

    def set_status(self, version: int, state: VersionState, reason: str = "") -> None:
        """Note the state of a version."""
        self.history.pop(version, None)
        self.history[version] = VersionStatus(state, reason)
        while len(self.history) > _MAX_HISTORY:
            oldest = next(each for each in self.history if self.live is None or each != self.live.version)
            del self.history[oldest]

    def flip(self, new: LoadedVersion | None) -> LoadedVersion | None:
        """Let ``new`` answer from now on; returns the retired old version, if there was one."""
        old, self.live = self.live, new
        if old is not None and new is not None:
            self.swaps += 1
        if new is not None:
            self.set_status(new.version, VersionState.READY)
        if old is not None:
            self.set_status(old.version, VersionState.UNLOADING, "requests in flight finish on it")
            old.retire()
        return old

    def move(self, new: LoadedVersion) -> LoadedVersion:
        """Let the live version answer from another session; returns the retired one with the old session."""
        old, self.live = self.live, new
        if old is None or old.version != new.version:
            raise RuntimeError("only a live version can move")
        old.retire()
        return old

    @property
    def answering(self) -> list[LoadedVersion]:
        """The live version, and the one on trial."""
        live = [self.live] if self.live is not None else []
        return live if self.trial is None else [*live, self.trial.new]

    @property
    def is_loading(self) -> bool:
        """Whether a version is on its way."""
        return any(status.state is VersionState.LOADING for status in self.history.values())


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A line of the repository's index."""

    name: str
    version: str
    state: str
    reason: str


class Registry:
    """The models by name.

    Attributes:
        ready: Whether all models that were on disk at the start have been tried.
    """

    def __init__(self) -> None:
        self._records: dict[str, ModelRecord] = {}
        self._shares: dict[str, ModelShare] = {}
        self.ready = False

    def record(self, name: str) -> ModelRecord:
        """The record of this model, made when there was none."""
        found = self._records.get(name)
        if found is None:
            now = time.perf_counter()
            account = Account(name, delays=Delays(now), share=UNLIMITED)
            account.declare(self._shares.get(name, UNLIMITED), now)
            found = self._records[name] = ModelRecord(name, account)
        return found

    def known(self, name: str) -> ModelRecord | None:
        """The record of this model, or None."""
        return self._records.get(name)

    def forget(self, name: str) -> None:
        """Drop all that is known of a model that answers no more; requests in flight end as they would have."""
        self._records.pop(name, None)

    def records(self) -> list[ModelRecord]:
        """The records of all models that are known."""
        return list(self._records.values())

    def accounts(self) -> list[Account]:
        """The accounts of all models that are known."""
        return [record.account for record in self._records.values()]

    @property
    def shares(self) -> Mapping[str, ModelShare]:
        """What was declared, by model."""
        return self._shares

    def declare_shares(self, shares: dict[str, ModelShare]) -> None:
        """These are the shares from now on, also of models that come later; models not named are not limited."""
        self._shares = shares
        now = time.perf_counter()
        for name, record in self._records.items():
            record.account.declare(shares.get(name, UNLIMITED), now)

    def delays(self, now: float) -> dict[str, History]:
        """What the windows of delays are made of, of models that were asked in any of them.

        Args:
            now: Seconds of ``time.perf_counter``.
        """
        since = now - max(WINDOWS)
        return {each.name: each.delays.history(now) for each in self.accounts() if each.delays.touched >= since}

    def continue_delays(self, histories: Mapping[str, History]) -> None:
        """Windows reach back into what another process counted, by model; before any request is answered."""
        for name, history in histories.items():
            if name in self._records:
                self._records[name].account.delays.continue_from(history)

    def live(self, name: str, version: str = "") -> LoadedVersion:
        """The version that answers.

        Args:
            name: Of the model.
            version: The only version that will do, or empty for whichever is live; during a trial, for whichever
                has its turn.

        Raises:
            NotFoundError: There is no such model or it is not loaded, or another version is live.
            UnavailableError: The first version is being loaded.
            InvalidRequestError: ``version`` is no version number.
        """
        record = self._records.get(name)
        live = record.live if record is not None else None
        if live is not None and (not version or version == live.version_text):
            trial = record.trial if record is not None else None
            return live if trial is None or version else trial.choose()
        if record is not None and record.trial is not None and version == record.trial.new.version_text:
            return record.trial.new
        raise self._why_not(name, version, record)

    def answering(self, name: str, version: str = "") -> list[LoadedVersion]:
        """The versions that answer, the live one first; to ask takes nobody's turn in a trial, unlike :meth:`live`.

        Args:
            name: Of the model.
            version: The only version of interest; empty for all of them.

        Raises:
            TiercelError: None does; what :meth:`live` raises.
        """
        record = self._records.get(name)
        answering = record.answering if record is not None else []
        found = [each for each in answering if version in ("", each.version_text)]
        if not found:
            raise self._why_not(name, version, record)
        return found

    def _why_not(
        self, name: str, version: str, record: ModelRecord | None
    ) -> NotFoundError | UnavailableError | InvalidRequestError:
        if version and not is_version(version):
            return InvalidRequestError(f"version {version[:40]!r} is not a number from 1")
        if record is not None and record.live is not None:
            return NotFoundError(
                f"version {version} of model '{name}' is not loaded; version {record.live.version} is live"
            )
        if not self.ready or (record is not None and record.is_loading):
            return UnavailableError(f"model '{name[:200]}' is not loaded yet; try again in a moment")
        return NotFoundError(f"model '{name[:200]}' is not loaded; POST /v2/repository/index lists what is there")

    def index(self, on_disk: list[str], only_ready: bool = False) -> list[IndexEntry]:
        """The models and versions that are known.

        Args:
            on_disk: Names of all models of the repository, so that those never loaded are listed too.
            only_ready: List live versions only.
        """
        lines: list[IndexEntry] = []
        for name in sorted({*self._records, *on_disk}):
            record = self._records.get(name)
            history = record.history if record is not None else {}
            lines += [
                IndexEntry(name, str(version), status.state.value, status.reason)
                for version, status in sorted(history.items())
            ]
            if not history:
                lines.append(IndexEntry(name, "", VersionState.UNAVAILABLE.value, "not loaded"))
        return [line for line in lines if not only_ready or line.state == VersionState.READY.value]
