"""The notebook among the examples, run by a real kernel with a real broker behind it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testing.product import Product
from testing.product_use import tiercel

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")


async def test_the_notebook_among_the_examples_runs_from_top_to_bottom(
    product: Product, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIERCEL_STATE_DIR", str(product.state_dir))
    # where one worker pays for them, and not where all of them collect the tests
    import nbformat
    from nbclient import NotebookClient

    notebook: Any = nbformat.reads((EXAMPLES / "notebook.ipynb").read_text(), as_version=4)  # type: ignore[no-untyped-call]
    client = NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(EXAMPLES)}})

    await client.async_execute()

    shown = [json.dumps(cell.get("outputs", [])) for cell in notebook.cells if cell.cell_type == "code"]
    html = [each for each in shown if "text/html" in each]
    assert len(html) == 5 + 1  # the job that was waited for, jobs, curve, two frames, endpoints
    curve = next(each for each in html if "<polyline" in each)
    assert "stroke-dasharray" in curve, "its tier is drawn"
    frame = next(each for each in html if "accelerator_seconds" in each)
    assert "rmse" in frame
    assert any("parameter.learning-rate" in each and "completed" in each for each in html)
    (answered,) = (cell.outputs[0]["data"]["text/plain"] for cell in notebook.cells if "outputs[" in cell.source)
    assert 1.5 < json.loads(answered)[0][0] < 3.5, "it is 2.5 where the line is fitted to the end"

    # What a job reported and delivered is copied with where its versions come from.
    jobs = (await tiercel("ls", "--json", state_dir=product.state_dir)).content
    (job_id,) = (job["id"] for job in jobs if job["state"] == "completed")
    to = ("--to", f"tensorboard:{tmp_path}/logs")
    copied = await tiercel("follow", job_id, *to, "--json", state_dir=product.state_dir)
    assert copied.content[job_id] >= 1, copied.errors
    assert (await tiercel("follow", job_id, *to, "--json", state_dir=product.state_dir)).content == {job_id: 0}
    written = b"".join(path.read_bytes() for path in (tmp_path / "logs" / job_id).iterdir())
    assert b"model_sha256" in written
    assert b"learning-rate" in written
