"""What jobs report, in the real MLflow and in files that the real TensorBoard reads; broken off and begun again."""

from __future__ import annotations

from pathlib import Path

import pytest

from testing import jobs_service as wire
from testing.jobs_service import Script
from tiercel import Client, InvalidSpecError
from tiercel.broker.client.sinks.following import follow
from tiercel.broker.client.sinks.opening import open_sink
from tiercel.core.errors import SetupError
from tiercel.v1 import jobs_pb2

VALUES = [0.5, 0.625, 0.75, 0.875]


@pytest.fixture(autouse=True)
def _learned(script: Script) -> None:
    """A job that reported twice so far, and is over."""
    script.jobs["j1"] = wire.job(state=jobs_pb2.JOB_STATE_COMPLETED, delivered=2)
    script.events = [wire.progress_made(2 + n, value) for n, value in enumerate(VALUES[:2])]


async def go_on(client: Client, script: Script, to: str) -> None:
    """The same job after two more reports, followed by who knows nothing of the time before; then once more."""
    script.events += [wire.progress_made(7 + n, value) for n, value in enumerate(VALUES[2:])]
    script.breaks = [1]
    assert await follow(client, ["j1", "j1"], open_sink(to)) == {"j1": 2}
    assert await follow(client, ["j1"], open_sink(to)) == {"j1": 0}


async def test_tensorboard_reads_every_point_once(client: Client, script: Script, tmp_path: Path) -> None:
    # where one worker pays for it, and not where all of them collect the tests
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    to = f"tensorboard:{tmp_path}"
    assert await follow(client, ["j1"], open_sink(to)) == {"j1": 2}
    (file,) = (tmp_path / "j1").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole + whole[-40:-7])  # killed within a record
    await go_on(client, script, to)
    read = EventAccumulator(str(tmp_path / "j1"))
    read.Reload()
    assert sorted(point.value for point in read.Scalars("accuracy")) == VALUES
    assert {"parameters", "outcome"} <= {tag.removesuffix("/text_summary") for tag in read.Tags()["tensors"]}


@pytest.mark.filterwarnings("ignore")  # MLflow's own, of the packages that it uses
async def test_mlflow_has_every_point_once(client: Client, script: Script, tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    assert await follow(client, ["j1"], open_sink(f"mlflow:{uri}")) == {"j1": 2}
    await go_on(client, script, f"mlflow:{uri}")
    mlflow = MlflowClient(tracking_uri=uri)
    (run,) = mlflow.search_runs([each.experiment_id for each in mlflow.search_experiments()])
    assert run.info.status == "FINISHED"
    assert run.data.tags["tiercel.job"] == "j1"
    assert sorted(each.value for each in mlflow.get_metric_history(run.info.run_id, "accuracy")) == VALUES


def test_what_is_no_place_or_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("wandb:x", "mlflow:", "logs"):
        with pytest.raises(InvalidSpecError, match="to: "):
            open_sink(text)
    monkeypatch.setitem(__import__("sys").modules, "tiercel.broker.client.sinks.tensorboard", None)
    with pytest.raises(SetupError, match=r"pip install 'tiercel\[tensorboard\]'"):
        open_sink("tensorboard:logs")
