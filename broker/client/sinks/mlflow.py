"""MLflow: a run for each job, in the experiment of its endpoint, found again by a tag."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from mlflow.entities import Metric, Param, RunTag

from tiercel.broker.client.parameters import parameters_of
from tiercel.broker.client.sinks.mlflow_server import MlflowServer
from tiercel.core.lineage import Lineage
from tiercel.core.views import JobInfo, ProgressEvent

_JOB, _SEQUENCE = "tiercel.job", "tiercel.sequence"
_STRANGE = re.compile(r"[^A-Za-z0-9_\-. ]")
# MLflow's own bounds.
_NAME_CHARACTERS, _VALUE_CHARACTERS = 240, 500
_METRICS_AT_A_TIME, _PARAMETERS_AT_A_TIME = 1_000, 100


class MlflowSink:
    """Writes to a tracking server or a database.

    Args:
        uri: See :class:`.MlflowServer`.
    """

    def __init__(self, uri: str) -> None:
        self._server = MlflowServer(uri)
        self._client = self._server.client
        self._runs: dict[str, str] = {}

    def begin(self, job: JobInfo) -> int:
        """Find the job's run, or make it with its parameters."""
        with self._server.refusals():
            return self._begin(job)

    def write(self, job: JobInfo, reports: Sequence[ProgressEvent]) -> None:
        """All metrics; a point that is there already is kept once, by MLflow itself."""
        metrics = [
            Metric(name_of(name), value, int(report.at.timestamp() * 1000), report.epoch)
            for report in reports
            for name, value in report.metrics.items()
        ]
        run = self._runs[job.id]
        with self._server.refusals():
            for begin in range(0, len(metrics), _METRICS_AT_A_TIME):
                self._client.log_batch(run, metrics=metrics[begin : begin + _METRICS_AT_A_TIME])
            self._client.set_tag(run, _SEQUENCE, str(reports[-1].sequence))

    def end(self, job: JobInfo, versions: Sequence[Lineage]) -> None:
        """Versions as tags, and the run's state."""
        run = self._runs[job.id]
        with self._server.refusals():
            for version in versions:
                told = version.to_json()
                names = ("version", "tier", "value", "model_sha256", "project_sha256", "commit", "node_id")
                self._client.set_tag(
                    run, f"tiercel.version.{version.version}", json.dumps({name: told[name] for name in names})
                )
            ended = {"cancelled": "KILLED", "failed": "FAILED"}.get(job.state.value, "FINISHED")
            self._client.set_terminated(run, status=ended)

    def _begin(self, job: JobInfo) -> int:
        name = name_of(job.spec.endpoint)
        experiment = self._client.get_experiment_by_name(name)
        place = experiment.experiment_id if experiment is not None else self._client.create_experiment(name)
        wanted = f"tags.`{_JOB}` = '{name_of(job.id)}'"
        runs = self._client.search_runs([place], filter_string=wanted, max_results=1)
        if runs:
            self._runs[job.id] = runs[0].info.run_id
            return int(runs[0].data.tags.get(_SEQUENCE, "0"))
        tags = {_JOB: name_of(job.id), "tiercel.tenant": job.tenant, "tiercel.metric": job.spec.metric}
        begun = int(job.submitted_at.timestamp() * 1000)
        run = self._client.create_run(place, start_time=begun, tags=tags, run_name=job.spec.name[:_VALUE_CHARACTERS])
        self._runs[job.id] = run.info.run_id
        parameters = {name_of(name): value[:_VALUE_CHARACTERS] for name, value in parameters_of(job.spec).items()}
        self._client.log_batch(
            run.info.run_id,
            params=[Param(name, value) for name, value in list(parameters.items())[:_PARAMETERS_AT_A_TIME]],
            tags=[RunTag(name_of(f"label.{name}"), value) for name, value in list(job.spec.labels.items())[:90]],
        )
        return 0


def name_of(text: str) -> str:
    """A name that MLflow takes, whatever a script calls its metrics."""
    return _STRANGE.sub("_", text)[:_NAME_CHARACTERS].strip(".") or "_"
