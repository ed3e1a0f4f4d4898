"""TensorBoard: event files in a folder for each job, one record a report, which has its number in it."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, types_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

from tiercel.broker.client.downloads import place_in
from tiercel.broker.client.parameters import parameters_of
from tiercel.core.errors import TiercelError
from tiercel.core.lineage import Lineage
from tiercel.core.views import JobInfo, ProgressEvent

_SEQUENCE = "tiercel/sequence"
_TEXT = summary_pb2.SummaryMetadata(plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="text"))


class TensorboardSink:
    """Writes event files that TensorBoard reads.

    Args:
        folder: Its log directory; each job has a folder of its id in it.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        # Of this life alone: what an earlier one left half written is read by nobody.
        self._name = f"events.out.tfevents.{int(time.time())}.tiercel.{uuid.uuid4().hex[:12]}"

    def begin(self, job: JobInfo) -> int:
        """Find out how far it is; parameters are written where nothing is yet."""
        folder = place_in(self._folder, f"{job.id}/{self._name}").parent
        numbers = [
            number
            for path in sorted(folder.glob("events.out.tfevents.*.tiercel.*"))
            for record in EventFileLoader(str(path)).Load()
            for value in record.summary.value
            if value.tag == _SEQUENCE
            for number in value.tensor.int64_val
        ]
        if not numbers:
            self._append(job, [_text("parameters", parameters_of(job.spec), job.submitted_at.timestamp())])
        return max(numbers, default=0)

    def write(self, job: JobInfo, reports: Sequence[ProgressEvent]) -> None:
        """A record a report: all of it is there, or nothing."""
        self._append(job, [_report(each) for each in reports])

    def end(self, job: JobInfo, versions: Sequence[Lineage]) -> None:
        """State and versions as text; written again, TensorBoard shows the last one."""
        shown = {"state": job.state.value, "versions": [_version(each) for each in versions]}
        self._append(job, [_text("outcome", shown, job.submitted_at.timestamp() + (job.finished_seconds or 0.0))])

    def _append(self, job: JobInfo, records: Sequence[Any]) -> None:
        path = place_in(self._folder, f"{job.id}/{self._name}")
        try:
            begun = path.exists()
            with path.open("ab") as file:
                writer = RecordWriter(file)
                if not begun:
                    writer.write(
                        event_pb2.Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString()
                    )
                for record in records:
                    writer.write(record.SerializeToString())
                writer.flush()
        except OSError as error:
            raise TiercelError(f"{path} cannot be written ({error.strerror}); what is there is kept") from error


def _report(report: ProgressEvent) -> Any:
    number = tensor_pb2.TensorProto(dtype=types_pb2.DT_INT64, int64_val=[report.sequence])
    values = [summary_pb2.Summary.Value(tag=name, simple_value=value) for name, value in report.metrics.items()]
    values.append(summary_pb2.Summary.Value(tag=_SEQUENCE, tensor=number))
    return event_pb2.Event(
        wall_time=report.at.timestamp(), step=report.epoch, summary=summary_pb2.Summary(value=values)
    )


def _text(tag: str, shown: object, at: float) -> Any:
    content = json.dumps(shown, indent=1, ensure_ascii=False).replace("\n", "\n    ")
    tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[f"    {content}".encode()])
    value = summary_pb2.Summary.Value(tag=tag, metadata=_TEXT, tensor=tensor)
    return event_pb2.Event(wall_time=at, summary=summary_pb2.Summary(value=[value]))


def _version(version: Lineage) -> dict[str, Any]:
    told = version.to_json()
    return {name: told[name] for name in ("version", "tier", "value", "model_sha256", "project_sha256", "commit")}
