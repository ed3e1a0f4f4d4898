"""Load → verify → build → warm → flip → drain → release, all of it off the request path."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from tiercel.core.errors import ArtefactRefusedError, ConflictError, NotFoundError, TiercelError, UnavailableError
from tiercel.serving.canary_plan import AT_ONCE, CanaryPlan
from tiercel.serving.dispatch.variants.configuration import ENDPOINT_VERSION
from tiercel.serving.loading import rolled_back as marks
from tiercel.serving.loading.cheap_variants import add_cheap_variants
from tiercel.serving.loading.choosing import is_there, version_wanted
from tiercel.serving.loading.holding_back import unmark, why_not_by_itself
from tiercel.serving.loading.load_parameters import LoadParameters
from tiercel.serving.loading.loader import Loader, Replaced
from tiercel.serving.loading.relocation import Relocation
from tiercel.serving.loading.trial_supervision import CarriedTrial, TrialSupervisor, promotion_of
from tiercel.serving.loading.watching import Watching
from tiercel.serving.models import repository
from tiercel.serving.models.canary.judgement import Outcome
from tiercel.serving.models.chosen import in_turn, why_other_stays
from tiercel.serving.models.loaded_version import LoadedVersion
from tiercel.serving.models.registry import ModelRecord, Registry, VersionState
from tiercel.serving.runtime.engine import Session
from tiercel.serving.runtime.model_settings import read_model_settings
from tiercel.serving.tasks import StartTask

if TYPE_CHECKING:
    from tiercel.serving.dispatch.variants.endpoints import Endpoints

_logger = logging.getLogger(__name__)

_NEWEST = LoadParameters()


class Lifecycle:
    """Brings versions up and down.

    Args:
        start_task: Starts a task that somebody owns; used for draining old versions and watching new ones.
        look_seconds: Time between two looks at a version that is on trial.
        endpoints: Names that stand for several variants; loaded and unloaded like models, if there are any.
        canary: How a newer version is tried where nobody says anything about it.
        watching: Looks at what versions are asked; None where nobody does.
        forget: Told of a model that was unloaded and is not on disk any more: its name may be somebody else's next.
    """

    def __init__(
        self,
        root: Path,
        registry: Registry,
        loader: Loader,
        start_task: StartTask,
        look_seconds: float = 0.25,
        endpoints: Endpoints | None = None,
        canary: CanaryPlan = AT_ONCE,
        watching: Watching | None = None,
        forget: Callable[[str], None] = lambda model: None,
    ) -> None:
        self._endpoints = endpoints
        self._canary = canary
        self._watching = watching
        self._forget = forget
        self._root = root
        self._registry = registry
        self._loader = loader
        self._start_task = start_task
        self._trials = TrialSupervisor(self, loader.shadows, start_task, look_seconds)
        self._relocation = Relocation(root, loader, self.release)
        self._paused = False
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # those that are in use

    async def load(self, name: str, wanted: LoadParameters = _NEWEST) -> int:
        """Let a version on disk answer; doing it twice is doing it once.

        Who asks for a trial is answered when it begins. Who says nothing of one is answered when the version answers
        everything, be that after the trial that is set for the model: what was loaded is then loaded for good.
        A version that is on trial and is loaded at once is promoted; if another version is loaded, it is rolled back.

        Args:
            name: Of the model.
            wanted: Which version, and whether it is tried first. The first version of a model never is, nor is an
                earlier one to go back to, unless it is said.

        Returns:
            The version that was loaded.

        Raises:
            InvalidRequestError: The name is impossible.
            NotFoundError: There is no such version of it on disk.
            ArtefactRefusedError: The version is not fit, or was rolled back; what was live stays live.
            ConflictError: Another version shall answer, and this one was not only to be tried.
            UnavailableError: The server is about to hand over or to leave.
        """
        self._refuse_if_paused()
        if self._endpoints is not None and await self._endpoints.load(name):
            return ENDPOINT_VERSION
        async with self.lock_of(name):
            self._refuse_if_paused()
            version = await self._loader.look_up(version_wanted, self._root, name, wanted)
            record = self._registry.record(name)
            await self._let_answer(record, version, wanted)
            trial = record.trial
        if trial is not None and wanted.canary is None:
            await promotion_of(trial)
        return version

    async def _let_answer(self, record: ModelRecord, version: int, wanted: LoadParameters) -> None:
        """Bring a version up and let it answer, what its plan says at first; its model is locked."""
        plan = await self._plan(record, version, wanted)
        await self._refuse_another(record, version, is_tried=plan.is_trial, goes_on=wanted.goes_on)
        trial = record.trial
        if trial is not None and trial.new.version == version:
            if not plan.is_trial:
                self._trials.end(record, Outcome.PROMOTED, "it was loaded without a trial")
            return
        self._trials.end(record, Outcome.ROLLED_BACK, f"version {version} was loaded")
        if record.live is not None and record.live.version == version:
            return
        # A trial compares both versions, so neither may move for the other.
        new = await self._bring_up(record, version, may_move=not plan.is_trial)
        if wanted.version is not None:  # else it bears no mark, or it would not have been wanted
            await self._loader.look_up(unmark, self._folder(record.name, version))
        self._trials.begin(record, new, plan)

    async def _refuse_another(self, record: ModelRecord, version: int, *, is_tried: bool, goes_on: bool) -> None:
        """Raise ConflictError where a version would answer for good in place of the one that shall."""
        live = record.live
        stays = goes_on or (live is not None and (is_tried or live.version == version))
        if not stays and (why := await self._loader.look_up(why_other_stays, self._root / record.name, version)):
            raise ConflictError(f"version {version} of model '{record.name}' does not answer: {why}")

    async def _plan(self, record: ModelRecord, version: int, wanted: LoadParameters) -> CanaryPlan:
        """How a version is tried: as it was said, else as it is set for the model, else for the server."""
        if wanted.canary is not None:
            return wanted.canary
        if record.live is None or version <= record.live.version:
            return AT_ONCE
        path = repository.artefact(self._root, record.name, version).path
        return (await self._loader.look_up(read_model_settings, path)).canary or self._canary

    async def unload(self, name: str) -> None:
        """Stop answering for a model; requests in flight finish. One that is not on disk any more is forgotten.

        Raises:
            NotFoundError: The model was never loaded.
            UnavailableError: The server is about to hand over.
        """
        self._known(name)
        self._refuse_if_paused()
        is_endpoint = self._endpoints is not None and await self._endpoints.unload(name)
        async with self.lock_of(name):
            self._refuse_if_paused()
            if not is_endpoint and (record := self._registry.known(name)) is not None:
                self._trials.end(record, Outcome.ROLLED_BACK, "the model was unloaded")
                if (old := record.flip(None)) is not None:
                    self.release(old, record, "unloaded")
            await self._forget_if_gone(name)
        if self._endpoints is not None:
            self._endpoints.tell_of_unloaded()

    async def _forget_if_gone(self, name: str) -> None:
        is_gone = not await self._loader.look_up(is_there, self._root, name)
        if is_gone and (self._endpoints is None or not self._endpoints.knows(name)):
            self._registry.forget(name)
            self._forget(name)

    def _known(self, name: str) -> ModelRecord:
        record = self._registry.known(repository.checked_name(name))
        if record is None:
            raise NotFoundError(f"model '{name}' is not loaded")
        return record

    def trial(self, name: str) -> dict[str, Any]:
        """The trial of a model that runs, or the last one, as JSON.

        Raises:
            NotFoundError: The model was never loaded.
        """
        record = self._known(name)
        live = record.live.version_text if record.live is not None else None
        return {"name": name, "live": live, "canary": self._trials.described(record)}

    def answers(self, name: str, version: int) -> bool:
        """Whether this version answers requests, all of them or on trial."""
        record = self._registry.known(name)
        return record is not None and any(each.version == version for each in record.answering)

    def sha256_of(self, name: str, version: int) -> str:
        """Of the ONNX file that answers as this version, hexadecimal; empty where it does not answer by itself."""
        record = self._registry.known(name)
        answering = record.answering if record is not None else []
        return next((each.sha256 for each in answering if each.version == version), "")

    def live_versions(self) -> dict[str, int]:
        """What answers, by model."""
        models = {record.name: record.live.version for record in self._registry.records() if record.live is not None}
        endpoints = self._endpoints.names if self._endpoints is not None else ()
        return models | dict.fromkeys(endpoints, ENDPOINT_VERSION)

    async def load_exactly(self, versions: Mapping[str, int]) -> None:
        """Let these versions answer, by model, and nothing else.

        Raises:
            TiercelError: One cannot; the others may be live or not.
        """
        loads = (self.load(name, LoadParameters(version, AT_ONCE, goes_on=True)) for name, version in versions.items())
        for outcome in await asyncio.gather(*loads, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        for name in self.live_versions().keys() - versions.keys():
            await self.unload(name)
        self._registry.ready = True

    def trials(self) -> dict[str, CarriedTrial]:
        """Trials that run, by model."""
        return self._trials.running(self._registry.records())

    async def go_on_with(self, trials: Mapping[str, CarriedTrial]) -> None:
        """Go on with the trials of another process, by model; one that cannot be is over, and the old version stays."""
        for name, carried in trials.items():
            record = self._registry.known(name)
            if record is None:
                continue
            async with self.lock_of(name):
                try:
                    new = await self._bring_up(record, carried.version)
                except TiercelError as error:
                    what = (carried.version, name, error.message)
                    _logger.warning("The trial of version %d of '%s' ends: %s", *what, extra={"model": name})
                    continue
                self._trials.begin(record, new, carried.plan, carried.progress)

    async def pause(self) -> None:
        """Refuse loads and unloads from now on; returns when none is under way."""
        self._paused = True
        self._trials.pause()
        for lock in tuple(self._locks.values()):
            async with lock:
                pass

    def resume(self) -> None:
        """Take loads and unloads again."""
        self._paused = False
        self._trials.resume()

    def leave(self) -> None:
        """Take no more loads, and answer those that wait for the end of a trial: this process will not see it."""
        self._paused = True
        self._trials.pause()
        for record in self._registry.records():
            if record.trial is not None:
                record.trial.is_settled.set()

    def _refuse_if_paused(self) -> None:
        if self._paused:
            raise UnavailableError("the server is handing over to a fresh process; ask that one in a moment")

    async def load_all(self) -> None:
        """Load each model of the repository: the chosen version or the newest, else the next older one that passes."""
        names = await self._loader.look_up(repository.model_names, self._root)
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(self._load_first(name), name=f"load {name}")
        self._registry.ready = True

    async def index(self, only_ready: bool) -> list[dict[str, str]]:
        """The repository's index as the protocol has it."""
        on_disk = await self._loader.look_up(repository.model_names, self._root)
        return [
            {"name": line.name, "version": line.version, "state": line.state, "reason": line.reason}
            for line in self._registry.index(on_disk, only_ready)
        ]

    async def _load_first(self, name: str) -> None:
        async with self.lock_of(name):
            if self._registry.record(name).live is None:
                try:
                    if self._endpoints is None or not await self._endpoints.load(name):
                        await self._load_newest_good(name)
                except TiercelError as error:
                    _logger.warning("'%s' could not be loaded: %s", name, error.message, extra={"model": name})
                except Exception:  # the other models are not to blame
                    _logger.exception("Model '%s' could not be loaded", name, extra={"model": name})

    async def _load_newest_good(self, name: str) -> None:
        record = self._registry.record(name)
        for version in await self._loader.look_up(in_turn, self._root, name):
            why_not = await self._loader.look_up(why_not_by_itself, self._folder(record.name, version))
            if why_not:
                record.set_status(version, VersionState.UNAVAILABLE, why_not)
                continue
            try:
                self.flip(record, await self._bring_up(record, version))
            except TiercelError as error:
                _logger.warning("%s", error.message, extra={"model": name, "version": version})
            else:
                return

    def _folder(self, model: str, version: int) -> Path:
        return repository.artefact(self._root, model, version).path.parent

    async def _bring_up(self, record: ModelRecord, version: int, *, may_move: bool = False) -> LoadedVersion:
        """A version that is ready to answer; the live one may move to the CPU for it, and is back if this fails."""
        live = record.live
        try:
            return await self._build(record, version, may_move=may_move)
        except TiercelError:
            if record.live is not live:
                await self._relocation.back(record)
            raise

    async def _build(self, record: ModelRecord, version: int, *, may_move: bool) -> LoadedVersion:
        record.set_status(version, VersionState.LOADING)
        artefact = repository.artefact(self._root, record.name, version)
        try:
            session = await self._loader.session(artefact, self._replaced(record, may_move=may_move))
            await self._check_fits(record.name, session)
        except ArtefactRefusedError as error:
            record.refusals += 1
            record.set_status(version, VersionState.UNAVAILABLE, error.message)
            still = f"version {record.live.version} stays live" if record.live else "no version of it is live"
            raise ArtefactRefusedError(
                f"version {version} of model '{record.name}' was refused: {error.message}; {still}"
            ) from error
        except BaseException:
            record.set_status(version, VersionState.UNAVAILABLE, "loading it was broken off")
            raise
        new = LoadedVersion(record.name, version, session, record.account, record.statistics_of(version))
        if self._watching is not None:
            await self._watching.begin(new)
        return await add_cheap_variants(self._loader, artefact, new)

    def _replaced(self, record: ModelRecord, *, may_move: bool) -> Replaced | None:
        if record.live is None:
            return None
        return Replaced(record.live.session, partial(self._relocation.to_cpu, record) if may_move else None)

    async def _check_fits(self, name: str, session: Session) -> None:
        """Refuse a variant that would leave the others of its endpoint; at the start all are loaded at once."""
        if self._endpoints is None or not self._registry.ready:
            return
        try:
            self._endpoints.check_fits(name, session)
        except ArtefactRefusedError:
            await self._loader.free(session)
            raise

    def flip(self, record: ModelRecord, new: LoadedVersion) -> None:
        """Let a version answer everything."""
        old = record.flip(new)
        ids = {"model": record.name, "version": new.version}
        _logger.info("Version %d of model '%s' is live", new.version, record.name, extra=ids)
        if old is not None:
            self.release(old, record, f"replaced by version {new.version}")

    def release(self, old: LoadedVersion, record: ModelRecord, reason: str) -> None:
        """Let go of a version that gets no more requests, once the last one is answered."""
        self._start_task(self._drain(old, record, reason), f"drain {old.model} {old.version}")

    def lock_of(self, model: str) -> asyncio.Lock:
        """Held while something changes about a model."""
        lock = self._locks.get(model) or asyncio.Lock()
        self._locks[model] = lock
        return lock

    async def noted(self, model: str, version: int, outcome: Outcome, reason: str) -> tuple[Outcome, str]:
        """What becomes of a version whose trial is decided, and why; noted for later processes if it did not pass."""
        if outcome is Outcome.ROLLED_BACK:
            await self._loader.look_up(marks.mark, self._folder(model, version), reason)
        elif why := await self._loader.look_up(why_other_stays, self._root / model, version):
            return Outcome.ROLLED_BACK, f"it did well, and {why}"
        return outcome, reason

    async def _drain(self, old: LoadedVersion, record: ModelRecord, reason: str) -> None:
        for each in old.by_kind.values():
            await each.wait_drained()
            await self._loader.free(each.close())
        if record.live is None or record.live.version != old.version:
            record.set_status(old.version, VersionState.UNAVAILABLE, reason)
