"""``tiercel up --detach``: the same in a process that has no terminal, so that closing one does not end it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import click

from tiercel.broker.cli.up.announcement import found_in, state_option
from tiercel.broker.cli.up.options import NodeOptions, Places, UpOptions
from tiercel.broker.state_folder import prepare_state_dir
from tiercel.core.errors import UnavailableError

_START_SECONDS = 120.0
_LOOK_SECONDS = 0.1
_FILES = ("tls_certificate", "tls_key", "tls_ca")
_LOG_BYTES = 10 * 1024 * 1024


async def start_detached(options: NodeOptions, command: tuple[str, ...] = (), seconds: float = _START_SECONDS) -> str:
    """Start ``up`` in the background and wait until all of it answers.

    Args:
        options: What was asked for.
        command: What to start; empty for ``up`` with these options.
        seconds: How long it may take.

    Returns:
        What it said when it was up, and how to stop it.

    Raises:
        UnavailableError: It ended, and said why; or it takes too long, and goes on.
        InvalidSpecError: The state directory cannot be used.
    """
    places = Places(options.state_dir)
    prepare_state_dir(places.state_dir)
    log = places.up_log
    process, before = _start(command or (sys.executable, "-P", "-m", __name__, _to_text(options)), log)
    try:
        async with asyncio.timeout(seconds):
            said = await _wait_up(process, log, before)
    except TimeoutError:
        raise _slow(seconds, log, before) from None
    except asyncio.CancelledError:
        process.terminate()
        raise
    finally:
        # It lives on without us: what Popen would warn of is what is wanted.
        process.returncode = process.returncode or 0
    stop = f"tiercel down{state_option(places.state_dir)}"
    return f"{said}\nIt runs in the background (process {process.pid}); '{stop}' stops it.\nIts log is {log}."


def _start(command: tuple[str, ...], log: Path) -> tuple[subprocess.Popen[bytes], int]:
    """The process, and where in the log it begins to speak."""
    if log.exists() and log.stat().st_size > _LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))
    with log.open("ab") as output:
        before = output.tell()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    return process, before


async def _wait_up(process: subprocess.Popen[bytes], log: Path, before: int) -> str:
    while True:
        # In this order: what it said last is there once it has ended.
        code = process.poll()
        lines = _said(log, before)
        if code is not None:
            errors = [line.removeprefix("Error: ") for line in lines if line.startswith("Error: ")]
            raise UnavailableError(errors[-1] if errors else f"It ended with exit code {code}; see {log}.")
        if said := found_in(lines):
            return said
        await asyncio.sleep(_LOOK_SECONDS)


def _slow(seconds: float, log: Path, before: int) -> UnavailableError:
    last = next((f" It said last: {line.rstrip('.')}." for line in reversed(_said(log, before)) if line), "")
    return UnavailableError(
        f"It is not up after {seconds:g} s and goes on trying.{last} See {log}, or stop it with 'tiercel down'."
    )


def _said(log: Path, before: int) -> list[str]:
    with log.open("rb") as file:
        file.seek(before)
        return file.read(_LOG_BYTES).decode(errors="replace").splitlines()


def _to_text(options: NodeOptions) -> str:
    return json.dumps(asdict(options), default=str)


def options_from(text: str) -> UpOptions:
    """Options that were written for another process."""
    values = json.loads(text)
    return UpOptions(
        **{
            **values,
            "state_dir": Path(values["state_dir"]),
            "tenants": tuple(values["tenants"]),
            "runtimes": tuple(values["runtimes"]),
            "labels": tuple(values["labels"]),
            "listen_names": tuple(values["listen_names"]),
            **{name: tuple(values[name]) for name in ("oidc_issuer", "oidc_audience", "oidc_algorithms")},
            **{name: Path(values[name]) for name in _FILES if values[name] is not None},
        }
    )


if __name__ == "__main__":
    # Takes a second, which whoever started it need not take as well.
    from tiercel.broker.cli.session import run_to_the_end
    from tiercel.broker.cli.up.run import run_up

    # No console: whoever reads the log of warnings finds them, and more, in broker.log, which does not grow for ever.
    try:
        run_to_the_end(run_up(options_from(sys.argv[1]), console=False))
    except click.exceptions.Exit as end:  # it has said why
        sys.exit(end.exit_code)
