"""``tiercel up`` with an agent that runs nothing: ``python -m testing.up_with_stand_in --state-dir DIR``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tiercel.broker.cli.session import run_to_the_end
from tiercel.broker.cli.up.options import UpOptions
from tiercel.broker.cli.up.run import run_up


@click.command()
@click.option("--state-dir", type=click.Path(path_type=Path), required=True)
@click.option("--nodes-port", default=0)
def up(*, state_dir: Path, nodes_port: int) -> None:
    options = UpOptions(
        state_dir=state_dir.absolute(),
        broker_port=0,
        nodes_port=nodes_port,
        http_port=0,
        grpc_port=0,
        mqtt_port=0,
        mqtt_url="",
        policy="",
        tenants=("default", "alice"),
        runtimes=("process",),
        node_id="n1",
        cpu_cores=2.0,
    )
    run_to_the_end(run_up(options, (sys.executable, "-m", "testing.stand_in_agent")))


if __name__ == "__main__":
    up()
