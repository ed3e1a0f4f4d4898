"""The commands of documents' blocks, made into what bash runs at a prepared product.

Each line is run as it stands, except for what a reader puts in its place: ``JOB``, ``/etc/tiercel``, ``PORT``. What
cannot be run is in :data:`NOT_RUN` with its reason, or the whole block has that in the line above it:
``<!-- not run: ... -->``.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from typing import Final

from testing.documents import REPOSITORY, Block

ENDLESS: Final = (
    r"tiercel (?:watch|top|up|join)(?! --?\w*detach)(?=\s|$)(?!.*--detach)",
    r"tiercel (?:events|logs) -f",
    r"tiercel node drain ",  # an endpoint of the only node has nowhere to go
    r"tiercel proxy config .*--watch",
    r"mosquitto_sub |haproxy ",
)
"""Commands that go on until Ctrl-C, which comes after :data:`INTERRUPTED_SECONDS`."""

NOT_RUN: Final = {
    r"make ": "test_targets_of_make_are_there finds each; .ci/run runs those that are checks, others take minutes",
    r"python -m benchmarks\.": "takes minutes to hours; tests/end_to_end/benchmarks runs them with little work",
    r"pip |python3? -m (?:venv|pip) |\. ~/|python3 -m venv": "make test-packages installs into fresh environments",
    r"apt-get ": "changes this machine",
    r"tiercel join ": "needs another machine: tests/end_to_end/test_hosts.py has made-up ones",
    r"tiercel node remove ": "the only node would be gone",
    r"tiercel authority finish": "has to wait for a day after the first step: tests/integration/broker/trust does not",
    r"tiercel follow |tiercel models register ": "tests/integration/broker/client does so with the real packages",
    r"tiercel infer ENDPOINT --at ": "needs a node that listens for others: tests/end_to_end/test_one_address.py",
    r"tiercel what-if .*--apply": "asks whether to; tests/integration/broker/cli answers",
}
"""Lines that are not run, by what they begin with, and why."""

LIVES: Final = {r"tiercel (?:up|down|restore)\b": "one runs already, for all pages but those that begin with it"}
"""The same, of lines that a page has which meets a product that runs."""

INTERRUPTED_SECONDS: Final = 2
_STATES: Final = {
    r"tiercel (?:cancel|suspend|priority) JOB|tiercel what-if .*JOB": "active",
    r"tiercel resume JOB": "suspended",
    r"tiercel retry JOB": "ended",
}
_WORDS: Final = (
    (r"(?<!-)\bMODEL MODEL\b", "digits:1 digits"),
    (r"\bENDPOINT:VERSION\b", "digits:1"),
    (r"(?<=remove )ENDPOINT VERSION\b", "digits 1"),
    (r"\bENDPOINT VERSION\b", "digits 3"),
    (r"\bENDPOINT\b", "digits"),
    (r"\bMODEL\b", "digits"),
    (r"\bFILE\b", "model.onnx"),
    (r"(?<=--endpoint )NAME\b", "deployed"),
    (r"\bNODE\b|(?<=drain )NAME\b", "local"),
    (r"(?<!\$)\bDIR\b", "out"),
    (r"(?<=TIERCEL_KEY=)\.\.\.", "$(tiercel key create --endpoint digits --rate 100/s | tail -1)"),
    (r"\$TIERCEL_TOKEN\b", "$(tiercel token create reader --tenant default | tail -1)"),
    (r"init digits/", "init fresh/"),
    (r"^curl ", "curl --fail-with-body --silent --show-error "),
    (r"--trials 30\b", "--trials 3"),
    (r"--input x=1,1,28,28", "--input input=1,3"),
    (r"(?<=--node )n2\b", "local"),
    (r"\bfar\b(?=\s|$)", "local"),
    (r"\bJOB\b|\b36d9bb46\b", "$JOB"),
    (r"(?<=revoke )ID\b", "$(tiercel $group ls --json | ids | head -1)"),
    (r"/etc/tiercel|/mnt\b", "$PWD/elsewhere"),
    (r"127\.0\.0\.1:PORT", "$DASHBOARD"),
    (r"127\.0\.0\.1:8000", "$SERVING"),
    (r"examples/digits|(?<=submit )digits(?= )", "digits"),
)
_SCRIPTS: Final = REPOSITORY / "testing" / "scripts"
WARM: Final = f"python -S {_SCRIPTS / 'warm_command.py'}"
"""Begins a command of bash that runs a Python script without the start of a Python."""
FREE: Final = """\
set -eEuo pipefail
trap 'echo "FAILED: $BASH_COMMAND" >&2' ERR
ids() { python -c 'import json, sys; told = json.load(sys.stdin); [print(one["id"]) for one in told]'; }
free() { SCRIPT none; }
a_job() { SCRIPT "$1"; }  # in which state?
""".replace("SCRIPT", f"{WARM} {_SCRIPTS / 'document_job.py'}")
"""Defines ``free``, which ends all jobs, and ``a_job``, which begins one."""
_PREAMBLE: Final = """\
interrupted() {{  # what goes on until Ctrl-C: neither an error nor an end of its own is wrong
  timeout --preserve-status --signal=INT --kill-after=60 {seconds} "$@" && return 0
  [ $? = 130 ]
}}
"""


def commands_of(block: Block) -> Iterator[str]:
    """The command lines of a block, continued ones as one; of a session those behind the prompt."""
    text = block.text.replace("\\\n", " ")
    lines = text.splitlines()
    if block.language == "console":
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    yield from (line for line in lines if line.strip() and not line.lstrip().startswith("#"))


def script_of(block: Block, *, begins: bool = False) -> str:
    """What bash runs of a block; empty where nothing of it can be.

    Args:
        block: One of commands.
        begins: Whether its page begins with nothing, and starts a product itself.
    """
    kept = NOT_RUN if begins else NOT_RUN | LIVES
    lines = [_runnable(line) for line in commands_of(block) if not any(re.match(begin, line.strip()) for begin in kept)]
    return "\n".join([FREE, _PREAMBLE.format(seconds=INTERRUPTED_SECONDS), *lines, ""]) if lines else ""


def _runnable(line: str) -> str:
    state = next((state for begin, state in _STATES.items() if re.match(begin, line)), "")
    if line.startswith("curl ") and "$TIERCEL_KEY" in line:
        line += "\ntiercel endpoints access digits public"  # for the pages behind it, which ask without a key
    before = f"JOB=$(a_job {state}); " if state else "free; " if line.startswith("tiercel submit") else ""
    line = re.sub(r"\s+#(?= ).*", "", line)
    for pattern, text in _WORDS:
        line = re.sub(pattern, text, line)
    if group := re.match(r"tiercel (key|token) revoke", line):
        line = line.replace("$group", group[1])
    if any(re.match(pattern, line) for pattern in ENDLESS):
        line = f"interrupted {line}"
    return before + line


_MODEL: Final = """\
import numpy as np, torch
x_test, y_test = np.random.rand(32, 4).astype(np.float32), np.arange(32) % 2
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
evaluate = lambda predict: float((predict(x_test).argmax(axis=1) == y_test).mean())
batches = lambda: [(torch.from_numpy(x_test), torch.from_numpy(y_test))]
"""


def program_of(block: Block) -> str:
    """A program that runs a Python block, with what its page takes for granted: a client, a job, a model."""
    tree = compile(block.text, str(block), "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    waits = any(isinstance(node, ast.Await | ast.AsyncWith | ast.AsyncFor) for node in ast.walk(tree))
    asks = re.search(r"(?<!as )\b(?:client|job)\.", block.text) and "tiercel.trainer.connect" not in block.text
    if not (waits or asks):
        return (_MODEL if "connect(model" in block.text and "model =" not in block.text else "") + block.text
    begin = "async def main():\n    async with sdk.Client" if waits else "def main():\n    with sdk.SyncClient"
    body = textwrap.indent(block.text, " " * 8)
    given = f"{begin}.from_state_dir() as client:\n        job = client.job(os.environ['JOB'])\n{body}\n"
    # A block that imports tiercel makes that name its own.
    head = "import asyncio, os, tiercel\nimport tiercel as sdk\n"
    return f"{head}{given}{'asyncio.run(main())' if waits else 'main()'}\n"
