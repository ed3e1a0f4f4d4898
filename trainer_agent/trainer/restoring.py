"""What a run has to remember to go on after it was ended, and how it is put back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from tiercel.trainer_agent.errors import CheckpointError
from tiercel.trainer_agent.trainer.checkpoints import CheckpointStore
from tiercel.trainer_agent.trainer.reporting import say
from tiercel.trainer_agent.trainer.trained import Copy, Trained
from tiercel.trainer_agent.trainer.verification import first_line


@dataclass(frozen=True, slots=True)
class Report:
    """What the script reported, and in which epoch."""

    epoch: int
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class Kept:
    """The copy of the model kept for a hand-over, and the report about it."""

    report: Report
    weights: Copy


@dataclass(frozen=True, slots=True)
class RunState:
    """Where a run is, apart from the training itself."""

    run_id: str  # the run that wrote it; a job's next attempt has another
    finished_epochs: int = 0  # how many epochs are done
    sequence: int = 0  # number of the run's last report
    unacknowledged: tuple[Report, ...] = ()  # its last reports, which the agent may not have, oldest first
    kept: Kept | None = None  # the weights kept for a hand-over, or None
    handed_over: tuple[float, ...] = ()  # targets for which a model was handed over
    shipped_value: float | None = None  # the best metric of what was handed over, or None


class RunKeeper:
    """Saves and restores a run: what is trained, and :class:`RunState`.

    Args:
        rank: Number of this process among those that train the model; the first one saves.
    """

    def __init__(self, store: CheckpointStore, trained: Trained, rank: int = 0) -> None:
        self._store, self._trained, self._rank = store, trained, rank

    @property
    def is_due(self) -> bool:
        """Whether it is time for another checkpoint."""
        return self._store.is_due

    def save(self, run: RunState, other_ranks: Mapping[int, bytes] = MappingProxyType({})) -> None:
        """Write a checkpoint.

        Raises:
            OSError: If the disk does not take it.
        """
        self._store.save({**self._trained.state(other_ranks), "run": _plain(run)})

    def restore(self, run_id: str) -> RunState | None:
        """Put everything back as the newest checkpoint has it; of another job's, the weights alone.

        Returns:
            Where the run was, or None if there is no checkpoint, or it is another job's.

        Raises:
            CheckpointError: If the script's model or optimizer is not the one that was saved.
        """
        state = self._store.load()
        if state is None:
            return None
        source = str(state["run"]["run_id"]).rpartition("-")[0]
        if source != run_id.rpartition("-")[0]:
            self._start_warm(state, source)
            return None
        try:
            self._trained.restore(state, self._rank)
        except (RuntimeError, KeyError, ValueError) as error:
            message = (
                "the checkpoint of an earlier run of this job does not fit the script any more "
                f"({first_line(error)}); a changed model or optimizer needs a new job"
            )
            raise CheckpointError(message) from error
        return _run_state(state["run"])

    def _start_warm(self, state: dict[str, Any], source: str) -> None:
        try:
            self._trained.restore_model(state)
        except (RuntimeError, KeyError, ValueError) as error:
            message = (
                f"warm_start: the weights of job {source} do not fit this script's model ({first_line(error)}); build "
                "the same model, or leave out warm_start"
            )
            raise CheckpointError(message) from error
        if self._rank == 0:
            say(f"starting with the weights of job {source}")


def _plain(run: RunState) -> dict[str, Any]:
    """The state as plain values and tensors; unlike ``dataclasses.asdict`` it copies no weights."""
    return {
        "run_id": run.run_id,
        "finished_epochs": run.finished_epochs,
        "sequence": run.sequence,
        "unacknowledged": [asdict(report) for report in run.unacknowledged],
        "kept_report": asdict(run.kept.report) if run.kept is not None else None,
        "kept_weights": run.kept.weights if run.kept is not None else None,
        "handed_over": run.handed_over,
        "shipped_value": run.shipped_value,
    }


def _run_state(plain: dict[str, Any]) -> RunState:
    kept = Kept(Report(**plain["kept_report"]), plain["kept_weights"]) if plain["kept_report"] is not None else None
    return RunState(
        run_id=plain["run_id"],
        finished_epochs=plain["finished_epochs"],
        sequence=plain["sequence"],
        unacknowledged=tuple(Report(**report) for report in plain["unacknowledged"]),
        kept=kept,
        handed_over=tuple(plain["handed_over"]),
        shipped_value=plain.get("shipped_value"),
    )
