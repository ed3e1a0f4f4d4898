"""Every command and every Python block of README.md and docs/ is run, or has a reason why it cannot be.

README, quick start and tutorial are gone through from their first block to their last, as a newcomer would; the blocks
of all other pages meet one product that has an endpoint with four versions.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testing.document_runs import ENDLESS, FREE, LIVES, NOT_RUN, WARM, commands_of, program_of, script_of
from testing.documents import PAGES, REPOSITORY, Block, blocks_of
from testing.product import tiercel_command
from testing.product_use import COMMAND_LINE
from testing.warm_python import lasting_python

STORIES = ("README.md", "docs/index.md", "docs/tutorial.md")
BLOCKS = [block for page in PAGES if page.name != "CONTRIBUTING.md" for block in blocks_of(page)]
SHELL = [block for block in BLOCKS if block.language in {"sh", "console"}]
PYTHON = [block for block in BLOCKS if block.language == "python"]
SECONDS = 240
LATEST = "$(tiercel ls --json | ids | tail -1)"
SPEC = """\
endpoint: digits
command: python train.py --pause 0.02
metric: accuracy
tiers: [0.3, 0.6, 0.8, 0.9]
outputs: [reports/*.html]
"""


def in_story(block: Block) -> bool:
    return str(block.page.relative_to(REPOSITORY)) in STORIES


class Reader:
    """Somebody with a home and a folder of their own, who types what a page says.

    Args:
        home: Where all of it is.
    """

    def __init__(self, home: Path) -> None:
        self.folder = home / "work"
        self.folder.mkdir()
        names = [name for name in os.environ if name.startswith(("TIERCEL", "OTEL", "XDG"))]
        kept = {name: value for name, value in os.environ.items() if name not in names}
        # Most of what a command takes is the start of its Python.
        self._python = lasting_python(COMMAND_LINE)
        commands = home / "bin"
        commands.mkdir()
        (commands / "tiercel").write_text(f'#!/bin/sh\nexec {WARM} {tiercel_command()[0]} "$@"\n')
        (commands / "tiercel").chmod(0o755)
        self.environment = kept | {
            "HOME": str(home),
            "PATH": f"{commands}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "BROWSER": "true",
            "WARM_PYTHON": str(self._python.door),
        }

    def types(self, script: str) -> str:
        """What bash answers; AssertionError with all of it where a line fails."""
        done = subprocess.run(
            ["bash", "-s"],
            input=script,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            pass_fds=[self._python.door],
        )
        assert done.returncode == 0, f"{done.stdout}\n{script}"
        return done.stdout


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """One at whose machine the product runs, with an endpoint ``digits`` that has four versions."""
    made = Reader(tmp_path_factory.mktemp("reader"))
    script = REPOSITORY / "testing" / "scripts" / "plane.py"
    project = made.folder / "digits"
    for folder in (project, made.folder / "fresh", made.folder):
        folder.mkdir(exist_ok=True)
        shutil.copy(script, folder / "train.py")
    (project / "tiercel.yaml").write_text(SPEC)
    (made.folder / "job.yaml").write_text(SPEC.replace("command: python train.py --pause 0.02", "script: train.py"))
    (made.folder / "key.txt").write_text("a secret\n")
    (made.folder / "out").mkdir()
    (made.folder / "elsewhere" / "imagenet").mkdir(parents=True)
    inputs = {"input": [[0.0, 0.5, 1.0]]}
    for name in ("input.json", "inputs.json"):
        (made.folder / name).write_text(json.dumps(inputs))
    tensor = {"name": "input", "shape": [1, 3], "datatype": "FP32", "data": [0.0, 0.5, 1.0]}
    (made.folder / "request.json").write_text(json.dumps({"inputs": [tensor]}))
    try:
        made.types("tiercel up --detach --tenant alice --listen 127.0.0.1")
        made.types("tiercel submit digits --wait && tiercel models pull digits --to .")
        made.types("tiercel models keep digits 100")
        (made.folder / "digits-4.onnx").rename(made.folder / "model.onnx")
        made.environment |= addresses_of(made)
        yield made
    finally:
        made.types("tiercel down")


def addresses_of(reader: Reader) -> dict[str, str]:
    home = Path(reader.environment["HOME"])
    (home / ".config").mkdir()
    told = json.loads((home / ".local/state/tiercel/addresses.json").read_text())
    (job,) = json.loads(reader.types("tiercel ls --json"))
    data = {"TIERCEL_DATA_IMAGENET": str(home), "TIERCEL_DATA_LABELS_2": str(home)}
    return data | {
        "JOB": job["id"],
        "DIR": str(home / ".local/state/tiercel"),
        "DASHBOARD": told["dashboard"],
        "SERVING": told["serving_http"],
    }


@pytest.mark.parametrize("block", [each for each in PYTHON if not (in_story(each) or each.reason)], ids=str)
def test_python_of_a_block_runs(block: Block, reader: Reader) -> None:
    (reader.folder / "block.py").write_text(program_of(block))
    reader.types(f"{FREE}free\n{WARM} block.py")


@pytest.mark.parametrize("block", [each for each in SHELL if not (in_story(each) or each.reason)], ids=str)
def test_commands_of_a_block_do_what_they_say(block: Block, reader: Reader) -> None:
    reader.types(script_of(block))


@pytest.mark.parametrize("name", STORIES)
def test_a_page_is_right_from_its_first_block_to_its_last(name: str, tmp_path: Path) -> None:
    newcomer = Reader(tmp_path)
    shutil.copytree(REPOSITORY / "examples" / "digits", newcomer.folder / "digits")
    try:
        for block in (each for each in BLOCKS if each.page == REPOSITORY / name and not each.reason):
            follow(newcomer, block)
    finally:
        newcomer.types("tiercel down || true")


def follow(newcomer: Reader, block: Block) -> None:
    """Do what a block is there for: make the file that it names in its first line, or type what it says."""
    named = re.match(r"# (\w+/[\w.]+)", block.text)
    if named:
        (newcomer.folder / named[1]).parent.mkdir(exist_ok=True)
        (newcomer.folder / named[1]).write_text(block.text)
    elif block.language == "python":
        (newcomer.folder / "block.py").write_text(program_of(block))
        newcomer.types(f"{FREE}export JOB={LATEST}\npython block.py")
    elif block in SHELL:
        newcomer.types(script_of(block, begins=True).replace("$JOB", LATEST))


def test_every_reason_why_a_line_is_not_run_is_one_of_a_line_that_there_is() -> None:
    lines = [line.strip() for block in SHELL for line in commands_of(block)]
    assert [begin for begin in NOT_RUN | LIVES if not any(re.match(begin, line) for line in lines)] == []
    assert [begin for begin in ENDLESS if not any(re.match(begin, line) for line in lines)] == []
    reasons = [*(NOT_RUN | LIVES).values(), *(block.reason for block in BLOCKS)]
    named = {name for reason in reasons for name in re.findall(r"tests/[\w/.]*\w", reason)}
    assert [name for name in sorted(named) if not (REPOSITORY / name).exists()] == []
