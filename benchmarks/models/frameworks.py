"""Scripts of every framework as jobs: how much of them changes, killed in the middle, and what their models answer.

Each is a script of ``examples/``. The plain one that it was made of is the script without what the documents say has to
change: they show the difference, which is taken back here. The job is killed once it has a checkpoint,
which it writes after every epoch here; goes on; and delivers. The live version is then asked for the rows that its run
has delivered with it, and its answers are compared with those that the framework gave.
"""

from __future__ import annotations

import ast
import asyncio
import difflib
import io
import re
import shutil
import tokenize
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results import ROOT
from testing.product import Product
from testing.product_use import client_of, running_product
from tiercel import Client, JobState
from tiercel.broker.client.spec_file import load_spec
from tiercel.trainer_agent.trainer.checkpoints import LATEST_FILE

Json = dict[str, Any]

EXAMPLES = ROOT / "examples"
FEW_LINES = 5
BY_HAND = ("line",)
"""Those whose model the library does not know, so that the script says how it is exported and saved."""
_DOCUMENTS = ("training-scripts.md", "frameworks.md")
_DIFFERENCE = re.compile(r"```diff\n\+\+\+ examples/(\w+)/train\.py\n(.*?)```", re.DOTALL)
_GAP = "..."
_JOB_SECONDS = 400.0
_LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_DIES = """
import os, pathlib, signal, threading, time
def _die():
    place = pathlib.Path(os.environ["TIERCEL_RUN_DIR"])
    while not (place / "checkpoints" / "LATEST").exists():
        time.sleep(0.001)  # what is waited for is a file that another part of the script writes
    with (place / "killed").open("x"):
        os.kill(os.getpid(), signal.SIGKILL)
if not (pathlib.Path(os.environ["TIERCEL_RUN_DIR"]) / "killed").exists():
    threading.Thread(target=_die, daemon=True).start()
"""


def names() -> list[str]:
    """The scripts, by name."""
    return sorted(_differences())


def script_of(name: str) -> str:
    """A script as a job."""
    return (EXAMPLES / name / "train.py").read_text()


def plain_of(name: str) -> str:
    """A script before it was made a job."""
    lines = script_of(name).splitlines()
    for part in _differences()[name].split(f"{_GAP}\n"):
        _take_back(part.splitlines(), lines, name)
    return "\n".join(lines) + "\n"


def _differences() -> dict[str, str]:
    """What the documents say has to change, by script."""
    return dict(_DIFFERENCE.findall("".join((ROOT / "docs" / each).read_text() for each in _DOCUMENTS)))


def _take_back(part: list[str], lines: list[str], name: str) -> None:
    """Make lines that follow each other in a script what they were."""
    after = [line[1:] for line in part if not line.startswith("-")]
    before = [line[1:] for line in part if not line.startswith("+")]
    places = [start for start in range(len(lines)) if lines[start : start + len(after)] == after]
    if len(places) != 1:
        raise ValueError(f"the documents' difference of {name} is in its script at {len(places)} places: {after}")
    lines[places[0] : places[0] + len(after)] = before


def changed_lines(before: str, after: str) -> int:
    """Lines of a script that are new or other ones, without comments, docstrings and empty lines."""
    lines = difflib.ndiff(_code_lines(before), _code_lines(after))
    return sum(line.startswith("+ ") for line in lines)


def _code_lines(text: str) -> list[str]:
    tree = ast.parse(text)
    strings = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    used = {line for each in tokens if each.type not in _LAYOUT for line in range(each.start[0], each.end[0] + 1)}
    return [line.rstrip() for number, line in enumerate(text.splitlines(), 1) if number in used - strings]


def dying(text: str) -> str:
    """A script that writes a checkpoint after each epoch, and is killed once, at the first."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            ("trainer.connect", "jax.connect", "TiercelCallback")
        ):
            node.keywords.append(ast.keyword("checkpoint_seconds", ast.Constant(0.0)))
    return _DIES.replace("LATEST", LATEST_FILE) + ast.unparse(tree)


async def measured(folder: Path) -> list[Json]:
    """What became of each script."""
    found = []
    async with running_product(folder) as product, client_of(product) as client:
        for name in names():
            project = folder / name
            shutil.copytree(EXAMPLES / name, project, ignore=shutil.ignore_patterns("__pycache__"))
            script = project / "train.py"
            lines = changed_lines(plain_of(name), script_of(name))
            script.write_text(dying(script.read_text()))
            found.append({"name": name, "changed_lines": lines, **await _run(product, client, project)})
    return found


async def _run(product: Product, client: Client, project: Path) -> Json:
    changes: Json = {"retries": 1}
    if project.name == "line":
        changes["tiers"] = [0.6, 0.2]
    handle = await client.submit(load_spec(project, changes))
    job = await handle.wait(_JOB_SECONDS)
    log = b"".join([piece async for piece in handle.logs()]).decode(errors="replace")
    delivered = sum(tier.version is not None for tier in job.tiers)
    live = {each.name: each.live_version for each in await client.list_endpoints()}.get(job.spec.endpoint)
    found: Json = {
        "state": str(job.state.value),
        "reason": job.reason if job.state is not JobState.COMPLETED else "",
        "runs": job.attempts,
        "went_on": "going on after epoch" in log,
        "tiers": len(job.tiers),
        "delivered": delivered,
        "difference": None,
    }
    if live:
        folder = product.state_dir / "agent" / "models" / job.spec.endpoint / str(live)
        found |= await _compared(client, job.spec.endpoint, folder)
    return found


async def _compared(client: Client, endpoint: str, folder: Path) -> Json:
    """By how much the answers differ at most from those of the framework, which were delivered with the version."""
    with await asyncio.to_thread(np.load, folder / "reference.npz") as arrays:
        reference = {name: arrays[name] for name in arrays.files}
    inputs = {name.removeprefix("input_"): each for name, each in reference.items() if name.startswith("input_")}
    answer = await client.infer(endpoint, inputs)
    expected = {name.removeprefix("output_"): each for name, each in reference.items() if name.startswith("output_")}
    differences = [
        float(np.abs(np.array(answer.outputs[name].tolist(), np.float64) - each.astype(np.float64)).max())
        for name, each in expected.items()
        if each.dtype.kind == "f"
    ]
    rows = max(len(each) for each in inputs.values())
    return {"difference": max(differences, default=None), "rows": rows}
