"""Models with weights beside their file, as those of more than 2 GiB have: delivered, deployed, asked and fetched."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from testing import onnx_models
from testing.product import Product
from testing.product_use import JOB_SECONDS, client_of, digits_job, tiercel
from tiercel import Client, InvalidSpecError, JobState, Script
from tiercel.core.errors import OverloadedError

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]
TENANT = "large"

ROWS = np.linspace(-1, 1, 128, dtype=np.float32).reshape(2, 64)
DELIVERS_A_PATH = """
from pathlib import Path

import numpy as np

import tiercel.trainer
from testing import onnx_models

job = tiercel.trainer.connect()
for value in (1.0, 2.0):
    onnx_models.save_external(onnx_models.plus(value), Path(f"{value}.onnx"))
    rows = np.zeros((3, 4), np.float32)
    job.deliver(f"{value}.onnx", metrics={"accuracy": value / 2.1}, inputs=rows, outputs=rows + value)
"""


async def on_disk(product: Product, endpoint: str) -> set[str]:
    """The files of all versions of an endpoint at its node."""
    folder = product.state_dir / "agent" / "models" / endpoint
    return {str(path.relative_to(folder)) for path in folder.glob("*/*")}


async def test_a_script_delivers_a_path_and_both_files_are_the_version(product: Product, tmp_path: Path) -> None:
    spec = digits_job("large", (0.4, 0.9), script=Script("train.py", DELIVERS_A_PATH.encode()))
    async with client_of(product, TENANT) as client:
        job = await (await client.submit(spec)).wait(JOB_SECONDS)
        assert job.state is JobState.COMPLETED, f"{job.reason}\n{job.log_tail}"
        answer = await client.infer("large", {"x": np.zeros((1, 4), np.float32)})
        assert answer.outputs["y"].tolist() == [[2.0] * 4]
        place = await client.models.pull("large", 1, tmp_path)
        assert place == tmp_path / "large-1" / "model.onnx"
        again = await client.deploy(place, "again")
        assert again.live
        assert (await client.models.pull("again", 1, tmp_path)).read_bytes() == place.read_bytes()
        answer = await client.infer("again", {"x": np.zeros((1, 4), np.float32)})
        assert answer.outputs["y"].tolist() == [[1.0] * 4]
        assert {"1/model.onnx", "1/model.onnx.data", "2/model.onnx.data"} <= await on_disk(product, "large")
        await client.models.remove("large", 1)
        await check_refused(client, tmp_path)


async def check_refused(client: Client, tmp_path: Path) -> None:
    """What lies elsewhere, or is another file than the model means, becomes no version."""
    path = tmp_path / "bad.onnx"
    path.write_bytes(onnx_models.with_external_data("/etc/passwd"))
    with pytest.raises(InvalidSpecError, match="have to be files beside the model"):
        await client.deploy(path, "bad")
    onnx_models.save_external(onnx_models.mlp(), path)
    (tmp_path / "bad.onnx_data").write_bytes(b"short")
    with pytest.raises(InvalidSpecError, match=r"end at byte 32768 of .*, which has 5"):
        await client.deploy(path, "bad")


async def test_files_that_change_while_they_are_sent_and_more_of_them_than_may_come_are_refused_in_words(
    product: Product, tmp_path: Path
) -> None:
    path, plain = tmp_path / "grows.onnx", tmp_path / "plain.onnx"
    onnx_models.save_external(onnx_models.mlp((1000, 1000, 10)), path)
    plain.write_bytes(onnx_models.mlp((1000, 1000, 10)))

    async with client_of(product, TENANT) as client:
        for file, changed in ((path, tmp_path / "grows.onnx_data"), (plain, plain)):

            def grow(sent: int, total: int, changed: Path = changed) -> None:
                if sent < total // 2:
                    with changed.open("ab") as writer:
                        writer.write(b"more")

            with pytest.raises(InvalidSpecError, match=r"^file: .* has changed while it was read"):
                await client.deploy(file, "grows", progress=grow)
        calls = [client.deploy(path, f"many-{number}") for number in range(10)]
        found = await asyncio.gather(*calls, return_exceptions=True)
    refused = [each for each in found if isinstance(each, BaseException)]
    assert len(found) > len(refused)
    # Refused while it sends, and not cut off.
    assert all(isinstance(each, OverloadedError) for each in refused), refused


async def test_a_model_in_many_files_is_deployed_from_the_command_line(product: Product, tmp_path: Path) -> None:
    content, path = onnx_models.mlp(), tmp_path / "many.onnx"
    onnx_models.save_external(content, path, one_file=False)
    words = ("deploy", str(path), "--endpoint", "many", "--input", "x=2,64", "--json")
    deployed = await tiercel(*words, state_dir=product.state_dir, tenant=TENANT)
    assert (deployed.exit_code, deployed.content["live"]) == (0, True), deployed.errors
    assert deployed.content["size_bytes"] > len(content)
    async with client_of(product, TENANT) as client:
        answer = await client.infer("many", {"x": ROWS})
    assert answer.outputs["y"].shape == (2, 10)
    pulled = await tiercel("models", "pull", "many", "--to", str(tmp_path), state_dir=product.state_dir, tenant=TENANT)
    assert pulled.output.strip() == str(tmp_path / "many-1" / "model.onnx")
