"""What is wrong with a folder is one sentence that says what to do, and no job: as somebody at a terminal reads it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from testing.brokers import node_token, running_broker, tenant_token
from testing.scripted_agent import ScriptedAgent
from tiercel.broker.cli import app

SPEC = {"endpoint": "shapes", "command": "python train.py", "metric": "accuracy", "tiers": [0.9]}


def saying(**changes: object) -> Callable[[Path], object]:
    """A spec that says something else."""
    return lambda folder: (folder / "tiercel.yaml").write_text(yaml.safe_dump(SPEC | changes))


WRONG: list[tuple[Callable[[Path], object], str]] = [
    (
        lambda folder: (folder / "data.bin").write_bytes(bytes(200_000)),
        (
            r"project: its files have more than the 97.7 KiB that may be sent; the largest are data.bin \(195 KiB.*"
            r"; leave out what is not needed by a .tiercelignore, and offer data to jobs as a data set of the node"
        ),
    ),
    (
        lambda folder: (folder / "raw").symlink_to("/mnt/raw"),
        r"project: the symbolic link 'raw' leads out of the folder, to '/mnt/raw', .* put a copy in its place",
    ),
    (
        saying(command="python trian.py"),
        r"command: there is no file 'trian.py' in the project; did you mean 'train.py'\?",
    ),
    (saying(requirements="requirements.txt"), r"requirements: .*/requirements.txt cannot be read \(No such file"),
    (saying(requirements=["einops >="]), r"requirements: 'einops >=' is not a package with its version"),
    (
        saying(data=["shapes"]),
        r"data: no node has the data set 'shapes'; .*'tiercel node data add shapes PATH'",
    ),
    (saying(secrets=["API_KEY"]), r"secrets: there is no secret API_KEY; set it with 'tiercel secret set API_KEY'"),
]


async def test_each_mistake_is_one_sentence_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_dir = tmp_path / "broker"
    async with running_broker(state_dir, project_bytes=100_000) as broker:
        monkeypatch.setenv("TIERCEL_TOKEN", tenant_token(state_dir))

        async def tiercel(*arguments: str) -> Result:
            return await asyncio.to_thread(CliRunner().invoke, app, [*arguments, "--broker", broker.broker_address])

        async with ScriptedAgent(node_token(state_dir)).connected(broker.nodes_address):
            for number, (make_wrong, words) in enumerate(WRONG):
                folder = tmp_path / f"project-{number}"
                folder.mkdir()
                (folder / "train.py").write_text("print('train')")
                (folder / "tiercel.yaml").write_text(yaml.safe_dump(SPEC))
                make_wrong(folder)
                told = await tiercel("submit", str(folder))
                assert told.exit_code == 1, told.output
                errors = [line for line in told.stderr.splitlines() if line.startswith("Error: ")]
                assert len(errors) == 1
                assert re.search(words, errors[0]), errors[0]
                assert told.stderr.splitlines()[-1] == errors[0], "nothing comes after it, such as a traceback"
            assert json.loads((await tiercel("ls", "--json")).stdout) == []
            assert not [path for path in (state_dir / "projects").rglob("*") if path.is_file()], "nothing was sent"

            (folder / "requirements.txt").write_text("einops\n")
            told = await tiercel("submit", str(folder), "--set", "secrets=[]")
            assert "not installed: requirements.txt; " in told.stdout
            assert "add to its spec: requirements: requirements.txt" in told.stdout
            asked = ("--set", "secrets=[]", "--set", "requirements=[einops]", "--endpoint", "other")
            assert "not installed" not in (await tiercel("submit", str(folder), *asked)).stdout
