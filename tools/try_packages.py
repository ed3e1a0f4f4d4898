"""Installs the wheel into fresh environments, and looks at each: what is there, what is not, and whether it works.

Usage: python tools/try_packages.py [--python VERSION]... [--only EXTRAS]...    (minutes, a network, gigabytes of disk)

Packages come from the index as constraints.txt pins them. Where UV_FIND_LINKS names a folder with a wheel of PyTorch
for CPUs, that is taken; else the index's own, which brings CUDA's libraries.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What each environment has of the lists that `tiercel up` looks at: serving's packages, training's.
LOOK = """
from tiercel.broker.cli.up.packages import SERVING, TRAINING, missing_of
print(sorted(missing_of(SERVING)), sorted(missing_of(TRAINING)))
"""
BASE = """
import importlib, pkgutil, sys, tiercel
needing = ("tiercel.serving", "tiercel.trainer_agent.trainer", "tiercel.trainer_agent.workloads", "tiercel.trainer")
for module in pkgutil.walk_packages(tiercel.__path__, "tiercel."):
    if module.name.startswith(needing) or module.name.endswith(("__main__", "migrations.env")):
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        print(module.name, "needs", error.name)
print([name for name in ("torch", "numpy", "onnx", "onnxruntime") if name in sys.modules])
"""

OF_EXTRAS = (
    "tiercel.broker.client.sinks.mlflow needs mlflow",
    "tiercel.broker.client.sinks.tensorboard needs tensorboard",
    "tiercel.broker.client.sweeps.study needs optuna",
    "tiercel.broker.store.artefacts.s3 needs s3fs",
    "tiercel.core.spans needs opentelemetry",
)
"""All that cannot be imported without an extra, apart from training and serving."""


class Environment:
    """One that has nothing but the wheel with some extras, and what these need."""

    def __init__(self, folder: Path, python: str, wheel: Path, extras: str) -> None:
        self._folder = folder
        self._variables = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "PYTHONPATH": ""}
        uv = [sys.executable, "-m", "uv"]
        self._call([*uv, "venv", "--quiet", "--python", python, str(folder / "venv")])
        what = f"tiercel[{extras}] @ {wheel.as_uri()}" if extras else str(wheel)
        install = [
            *uv,
            "pip",
            "install",
            "--quiet",
            "--compile-bytecode",
            "--only-binary",
            ":all:",
            "--constraint",
            str(ROOT / "constraints.txt"),
        ]
        self._call([*install, "--python", str(folder / "venv"), what])
        self._call([*uv, "pip", "check", "--quiet", "--python", str(folder / "venv")])

    def _call(self, command: list[str], given: str = "") -> str:
        """What a command prints; SystemExit with what it said if it fails or takes an hour."""
        done = subprocess.run(
            command, cwd=self._folder, env=self._variables, input=given, text=True, capture_output=True, timeout=3600
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def python(self, code: str) -> str:
        """What a program prints."""
        return self._call([str(self._folder / "venv" / "bin" / "python"), "-c", code])

    def tiercel(self, *words: str, given: str = "") -> str:
        """What a command of Tiercel prints."""
        return self._call([str(self._folder / "venv" / "bin" / "tiercel"), *words], given)


def expect(found: object, wanted: object) -> None:
    """Ends the program where something is not as it should be."""
    if found != wanted:
        raise SystemExit(f"Expected:\n{wanted}\nFound:\n{found}")


def try_base(environment: Environment) -> None:
    """Broker, agent, client and command line, and nothing that is heavy."""
    expect(environment.python(BASE).splitlines(), [*OF_EXTRAS, "[]"])


def try_train(environment: Environment) -> None:
    """What scripts import."""
    expect(environment.python(LOOK).split("] ")[1], "[]\n")
    environment.python("import tiercel.trainer, torch; from tiercel.trainer_agent.workloads import digits_mlp")


def try_serve(environment: Environment) -> None:
    """The inference server, and no PyTorch."""
    expect(environment.python(LOOK).split("] ")[0], "[")
    environment.python("import sys, tiercel.serving.main; assert 'torch' not in sys.modules")
    environment.python("from importlib.util import find_spec; assert find_spec('torch') is None")


def try_all(environment: Environment) -> None:
    """A job on this machine, from nothing to an answer."""
    try:
        environment.tiercel("up", "--detach")
        environment.tiercel("submit", str(ROOT / "examples" / "line"), "--wait")
        answer = json.loads(environment.tiercel("infer", "line", "-", "--json", given='{"x": [[1.0]]}'))
        (output,) = answer["outputs"]
        if not 2.5 < output["data"][0][0] < 4.5:
            raise SystemExit(f"3 * 1 + 1 is 4, its first tier is reached before that, and it answered {answer}")
    finally:
        environment.tiercel("down")


def try_small(environment: Environment) -> None:
    """Each of the extras that bring one package."""
    environment.python(
        "import s3fs, gcsfs, huggingface_hub, tokenizers, pandas, mlflow, tensorboard, optuna, opentelemetry.sdk"
    )


TRIALS: dict[str, Callable[[Environment], None]] = {
    "": try_base,
    "train": try_train,
    "serve": try_serve,
    "train,serve,envs": try_all,
    "s3,gs,hf,tokenizers,notebook,mlflow,tensorboard,sweep,otel": try_small,
}


def try_tools(wheel: Path, version: str) -> None:
    """``uv tool install`` and ``pipx install``, as people have command lines of their own."""
    with tempfile.TemporaryDirectory() as scratch:
        homes = {name: f"{scratch}/{name}" for name in ("UV_TOOL_DIR", "UV_TOOL_BIN_DIR", "PIPX_HOME", "PIPX_BIN_DIR")}
        for bin_folder, words in {
            "UV_TOOL_BIN_DIR": ["tool", "install"],
            "PIPX_BIN_DIR": ["tool", "run", "pipx", "install"],
        }.items():
            command = [sys.executable, "-m", "uv", *words, str(wheel)]
            subprocess.run(command, env={**os.environ, **homes}, check=True, capture_output=True, timeout=1800)
            installed = [f"{homes[bin_folder]}/tiercel", "--version"]
            expect(subprocess.run(installed, check=True, capture_output=True, text=True).stdout, version)


def main() -> int:
    """Tries all that was asked for, and prints how long each took."""
    parser = argparse.ArgumentParser(description="Installs the wheel into fresh environments, and looks at each.")
    parser.add_argument("--python", action="append", help="a version, or a path; by default this one")
    parser.add_argument("--only", action="append", choices=[*TRIALS, "tools"], help="extras; by default all of them")
    options = parser.parse_args()
    packages = [sys.executable, "tools/packages.py", "build/packages"]
    built = subprocess.run(packages, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    wheel = (ROOT / built.split()[1]).resolve()
    version = f"tiercel {wheel.name.split('-')[1]}\n"
    for python in options.python or [sys.executable]:
        for extras, trial in TRIALS.items():
            if options.only and extras not in options.only:
                continue
            began = time.monotonic()
            with tempfile.TemporaryDirectory() as scratch:
                environment = Environment(Path(scratch), python, wheel, extras)
                expect(environment.tiercel("--version"), version)
                trial(environment)
            sys.stdout.write(f"{python} tiercel[{extras}]: {time.monotonic() - began:.0f} s\n")
            sys.stdout.flush()
    if not options.only or "tools" in options.only:
        try_tools(wheel, version)
        sys.stdout.write("uv tool install, pipx install: done\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
