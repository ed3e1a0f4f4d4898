"""``make bench-faults``: every attack on the real product, one after the other, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from benchmarks.results import KEEP_HELP, ROOT, Bar
from benchmarks.sections import bars_table, finish

ATTACKS = ("reconnect", "script-flood", "anonymous-flood", "full-disk")
DEADLINE_SECONDS = 600.0
DOCUMENT = ROOT / "docs" / "faults.md"

Json = dict[str, Any]


def main(
    only: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(ATTACKS)}; repeatable.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help=KEEP_HELP)] = False,
) -> None:
    """Attack, tell, and write faults.json; exits with 1 where a bar does not hold."""
    figures = {name: found for name in only or ATTACKS if (found := _attack(name)) is not None}
    finish("faults", command="make bench-faults", figures=figures, keep=keep, section=(DOCUMENT, section_of))


def section_of(_: object, bars: Sequence[Bar]) -> str:
    """What documents show of the result."""
    return bars_table("attack", bars)


def _attack(name: str) -> Json | None:
    """What an attack printed; None where it could not be made, which is said."""
    typer.echo(f"{name} …")
    command = [sys.executable, "-m", f"benchmarks.faults.{name.replace('-', '_')}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)
        found: Json = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        typer.echo(f"{name} did not end within {DEADLINE_SECONDS:g} s", err=True)
        return None
    except ValueError:
        typer.echo(f"{name} says nothing: {done.stderr.strip()[-500:]}", err=True)
        return None
    return found


if __name__ == "__main__":
    typer.run(main)
