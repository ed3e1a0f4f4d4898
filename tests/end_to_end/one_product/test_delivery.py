"""A job's way from submission to answers, seen by everybody who may look, and by those who may not."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from testing import onnx_models
from testing.mqtt import mosquitto_command
from testing.needs import need
from testing.product import Product, tiercel_command
from testing.product_use import JOB_SECONDS, client_of, digits_job, get_json, post_json, serving_index, tiercel
from testing.sample_images import load_samples
from testing.terminals import terminal
from tiercel import Client, EndpointBusyError, InvalidSpecError, JobState, NotFoundError, TierState
from tiercel.broker.client.state_dir import read_token

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

TRITON_CLIENT = Path(__file__).parents[3] / "testing" / "triton_client.py"
PICTURES = Path(__file__).parents[3] / "build" / "cli-pictures"
SIZES = ((80, 24), (200, 50))
WIDE = ("explain", "events", "what-if")  # views that a wider terminal shows otherwise
IMAGES = 40


async def test_a_job_is_delivered_tier_by_tier_and_everybody_sees_it(product: Product, tmp_path: Path) -> None:
    async with client_of(product, "delivery") as owner, client_of(product, "stranger") as stranger:
        handle = await owner.submit(digits_job())
        job = await handle.wait(JOB_SECONDS)
        assert job.state is JobState.COMPLETED, f"{job.reason}\n{job.log_tail}"
        assert [(tier.number, tier.state, tier.version) for tier in job.tiers] == [
            (1, TierState.DELIVERED, 1),
            (2, TierState.DELIVERED, 2),
        ]
        for tier in job.tiers:
            assert tier.delivered_value is not None
            assert tier.delivered_value >= tier.target
            assert tier.reached_seconds is not None
            assert tier.delivered_seconds is not None
            assert tier.reached_seconds <= tier.delivered_seconds
        second, first = await owner.models.list()
        pulled = await owner.models.pull("digits", 1, tmp_path / "models")
        assert hashlib.sha256(pulled.read_bytes()).hexdigest() == first.sha256
        assert [path.name for path in pulled.parent.iterdir()] == ["digits-1.onnx"]
        assert (first.size_bytes, first.nodes, second.live) == (pulled.stat().st_size, ("local",), True)
        (endpoint,) = await owner.list_endpoints()
        assert (endpoint.live_version, [version.version for version in endpoint.versions]) == (2, [1, 2])

        assert await stranger.list_jobs() == ()
        assert await stranger.list_endpoints() == ()
        for forbidden in (stranger.get_job(handle.id), stranger.cancel_job(handle.id), stranger.explain_job(handle.id)):
            with pytest.raises(NotFoundError):
                await forbidden

        await _check_deployed_files(owner, stranger, product, tmp_path)
    assert (await serving_index(product))["digits", "2"] == "READY"
    await _check_command_line(product)
    await asyncio.to_thread(_check_terminals, product, handle.id)
    await _check_standard_clients(product, tmp_path)
    await _check_retained_topics(product, handle.id)


def _check_terminals(product: Product, job_id: str) -> None:
    """No line of a view is cut in the middle of a word; they are kept in build/cli-pictures, to be looked at."""
    need(shutil.which("tmux"), "tmux", "tmux")
    where = ("--state-dir", str(product.state_dir))
    tenant = (*where, "--tenant", "delivery")
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, options in (
        ("status", where),
        (f"explain {job_id}", tenant),
        ("explain --endpoint digits", tenant),
        ("what-if --policy fifo", tenant),
        ("events", tenant),
        ("doctor", where),
        ("policy show", where),
        ("quota show", where),
        ("quota show delivery", where),
    ):
        for width, height in SIZES if name.startswith(WIDE) else SIZES[:1]:
            with terminal(width, height, tiercel_command(*name.split(), *options), {}) as view:
                text, lines = view.wait("END "), view.lines()
            picture = name.replace(f" {job_id}", " job").replace(" --", "-").replace(" ", "-")
            (PICTURES / f"{picture}-{width}x{height}.txt").write_text(f"{text}\n")
            assert "END 0" in text
            assert [line for line in lines if len(line) > width] == []


async def _check_deployed_files(owner: Client, stranger: Client, product: Product, tmp_path: Path) -> None:
    """Files of people become versions without any job; what is no model, or runs nowhere, does not."""
    paths = {name: tmp_path / f"{name}.onnx" for name in ("one", "two", "part", "strange")}
    paths["one"].write_bytes(onnx_models.plus(1.0))
    paths["two"].write_bytes(onnx_models.plus(2.0))
    paths["part"].write_bytes(onnx_models.plus(1.0)[:-20])
    paths["strange"].write_bytes(onnx_models.with_custom_operator())
    version = await owner.deploy(paths["one"], "plus", accuracy=0.9, inputs={"x": (3, 4)})
    assert (version.version, version.live, version.nodes, version.value) == (1, True, ("local",), 0.9)
    for name, reason in (("part", "no ONNX model, only a part"), ("strange", "is not a standard one")):
        with pytest.raises(InvalidSpecError, match=f"file: .*{reason}"):
            await owner.deploy(paths[name], "plus", replace=True)
    for wrong in (-0.1, 97.0):
        with pytest.raises(InvalidSpecError, match=r"accuracy: .* is no fraction from 0 to 1"):
            await owner.deploy(paths["two"], "plus", accuracy=wrong)
    with pytest.raises(InvalidSpecError, match="is a folder; give the ONNX file in it"):
        await owner.deploy(tmp_path, "plus")
    with pytest.raises(EndpointBusyError, match="belongs to another tenant"):
        await stranger.deploy(paths["one"], "plus")
    words = ("deploy", str(paths["two"]), "--endpoint", "plus", "--json")
    deployed = await tiercel(*words, state_dir=product.state_dir, tenant="delivery")
    assert (deployed.exit_code, deployed.content["live"], deployed.content["value"]) == (0, True, None), deployed.errors
    answer = await owner.infer("plus", {"x": np.zeros((1, 4), np.float32)})
    assert answer.outputs["y"].tolist() == [[2.0] * 4]
    card = await owner.models.show("plus")
    assert (card.lineage.deployed_by, card.lineage.file, card.lineage.job_id) == ("delivery", "two.onnx", "")
    assert (await owner.models.rollback("plus")).live_version == 1
    await owner.models.remove("plus", deployed.content["version"])
    with pytest.raises(NotFoundError, match="keeps no files of version"):
        await owner.models.pull("plus", deployed.content["version"], tmp_path / "refused" / "deep")
    assert not (tmp_path / "refused").exists()
    await owner.delete_endpoint("plus")


async def _check_command_line(product: Product) -> None:
    samples = load_samples("digits")
    inputs = json.dumps({await _input_name(product): samples.images[:IMAGES].tolist()})
    answer = await tiercel("infer", "digits", "--json", state_dir=product.state_dir, tenant="delivery", text=inputs)
    assert answer.exit_code == 0, answer.errors
    assert answer.content["version"] == 2
    _check_scores(np.array(answer.content["outputs"][0]["data"]))
    denied = await tiercel("infer", "digits", state_dir=product.state_dir, tenant="stranger", text=inputs)
    assert denied.exit_code == 1
    listed = await tiercel("ls", "--json", state_dir=product.state_dir, tenant="delivery")
    assert [job["state"] for job in listed.content] == ["completed"]


async def _input_name(product: Product) -> str:
    status, metadata = await get_json(f"http://{product.addresses['serving_http']}/v2/models/digits")
    assert status == 200
    return str(metadata["inputs"][0]["name"])


def _check_scores(scores: np.ndarray) -> None:
    right = [load_samples("digits").score(number, {"scores": row}) for number, row in enumerate(scores)]
    assert len(right) == IMAGES
    # The model is right for 9 in 10 of all test images; of these few it may miss some more.
    assert np.mean(right) > 0.7


async def _check_standard_clients(product: Product, tmp_path: Path) -> None:
    """Clients that nobody here wrote, over plain HTTP, and tritonclient over HTTP and gRPC."""
    images = load_samples("digits").images[:IMAGES]
    name = await _input_name(product)
    tensor = {"name": name, "datatype": "FP32", "shape": list(images.shape), "data": images.ravel().tolist()}
    url = f"http://{product.addresses['serving_http']}/v2/models/digits/infer"
    status, answer = await post_json(url, {"id": "seven", "inputs": [tensor]})
    assert (status, answer["model_version"], answer["id"]) == (200, "2", "seven")
    expected = np.array(answer["outputs"][0]["data"]).reshape(answer["outputs"][0]["shape"])
    _check_scores(expected)

    np.save(tmp_path / "images.npy", images)
    for protocol, address in (("http", "serving_http"), ("grpc", "serving_grpc")):
        scores = await _ask_tritonclient(protocol, product.addresses[address], tmp_path)
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)


async def _ask_tritonclient(protocol: str, address: str, folder: Path) -> np.ndarray:
    # A process of its own: tritonclient's HTTP side brings gevent, which is not to be in a process with asyncio.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(TRITON_CLIENT), protocol, address, "digits"),
        *(str(folder / "images.npy"), str(folder / f"{protocol}.npz")),
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    answer = np.load(folder / f"{protocol}.npz")
    assert str(answer["version"]) == "2"
    return np.asarray(answer["scores"])


async def _check_retained_topics(product: Product, job_id: str) -> None:
    """What mosquitto_sub gets from the start is the state as it is now."""
    host, _, port = product.addresses["mqtt"].rpartition(":")
    expected: dict[str, dict[str, object]] = {
        f"tiercel/v1/delivery/jobs/{job_id}/state": {"state": "completed"},
        f"tiercel/v1/delivery/jobs/{job_id}/tiers/1": {"state": "delivered", "version": 1},
        f"tiercel/v1/delivery/jobs/{job_id}/tiers/2": {"state": "delivered", "version": 2},
        "tiercel/v1/delivery/endpoints/digits/version": {"version": 2, "job": job_id},
        "tiercel/v1/nodes/local/presence": {"presence": "online"},
        "tiercel/v1/broker/presence": {"presence": "online"},
    }
    process = await asyncio.create_subprocess_exec(
        *(mosquitto_command("mosquitto_sub"), "-h", host, "-p", port, "-t", "tiercel/#", "-F", "%r %t %p"),
        *("-u", "delivery", "-P", read_token(product.state_dir, "delivery")),
        stdout=asyncio.subprocess.PIPE,
    )
    seen: dict[str, dict[str, object]] = {}
    try:
        assert process.stdout is not None
        async with asyncio.timeout(90):
            while not expected.keys() <= seen.keys():
                retained, topic, payload = (await process.stdout.readline()).decode().split(" ", 2)
                if retained == "1":
                    seen[topic] = json.loads(payload)
    finally:
        process.kill()
        await process.communicate()
    for topic, fields in expected.items():
        assert fields.items() <= seen[topic].items()
