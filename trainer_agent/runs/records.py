"""What the agent remembers of its runs across its own death: one small file for each run."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from tiercel.trainer_agent.disk.files import write_atomically
from tiercel.v1 import nodes_pb2

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run, as it is stored: fields keep their names, so that a later version opens what an earlier one wrote."""

    run_id: str  # the run
    job_id: str  # its job
    runtime: str  # what runs it: ``process`` or ``docker``
    order: dict[str, Any] = field(default_factory=dict)  # what it was started with, see :meth:`.RunOrder.to_json`
    token: str = ""  # its secret
    ended: bool = False  # whether it is gone
    exit_code: int | None = None  # its exit code, -N for signal N, or None when it is not known
    reason: str = ""  # plain words about its end
    lost: bool = False  # whether it ended through no fault of the job
    log_tail: str = ""  # the last lines of its output
    cpu_seconds: float = 0.0  # CPU seconds it has used
    moved: bool = False  # whether it was stopped so that its job goes on elsewhere
    carried: bool = False  # whether the broker has its checkpoint
    carry_pending: bool = False  # whether the broker is still to be sent that
    carry_error: str = ""  # plain words when it should have that and has not
    accelerator_seconds: float = 0.0  # seconds that it kept an accelerator busy
    files_pending: bool = False  # whether the broker is still to be sent the files that it left behind
    environment: str = ""  # key of the environment with its packages, or empty
    image_id: str = ""  # id of its container's image, or empty

    def status(self) -> nodes_pb2.RunStatus:
        """What the broker is told of a run that has ended."""
        return nodes_pb2.RunStatus(
            run_id=self.run_id,
            state=nodes_pb2.RUN_STATE_EXITED,
            exit_code=self.exit_code,
            reason=self.reason,
            lost=self.lost,
            log_tail=self.log_tail,
            cpu_seconds=self.cpu_seconds,
            carried=self.carried,
            carry_error=self.carry_error,
            accelerator_seconds=self.accelerator_seconds,
        )


_FIELDS: Final = {each.name for each in fields(RunRecord)}


class RunRecords:
    """The records of a node's runs."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder

    def save(self, record: RunRecord) -> None:
        """Keep a record, in place of an older one of the same run."""
        write_atomically(self._folder / f"{record.run_id}.json", json.dumps(asdict(record)).encode())

    def remove(self, run_id: str) -> None:
        """Forget a run."""
        (self._folder / f"{run_id}.json").unlink(missing_ok=True)

    def load(self) -> list[RunRecord]:
        """All records, by run id. One that cannot be read is set aside and reported in the log."""
        records = []
        for path in sorted(self._folder.glob("[!.]*.json")):
            try:
                stored = json.loads(path.read_bytes())
                records.append(RunRecord(**{key: stored[key] for key in stored.keys() & _FIELDS}))
            except (ValueError, TypeError, AttributeError) as error:
                _log.warning("the record %s cannot be read and is set aside: %s", path, error)
                path.rename(path.with_suffix(".unreadable"))
        return records
