"""``tiercel mqtt``: what an MQTT broker of the operator's own has to be told."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

import click

from tiercel.broker.cli.parameters import command, state_dir_option
from tiercel.broker.cli.session import fail
from tiercel.core.errors import TiercelError, wrong_field

_BROKER_FILE = "broker.env"
_NAME, _PASSWORD = "TIERCEL_MQTT_USERNAME", "TIERCEL_MQTT_PASSWORD"


@command("tiercel mqtt config --dir /etc/mosquitto/tiercel --owner mosquitto")
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Where to put the files."
)
@click.option("--owner", default="", help="The user that mosquitto runs as, to whom the files are given.")
@state_dir_option
def config(*, folder: Path, owner: str, state_dir: Path | None) -> None:
    """Write the files by which mosquitto lets the tenants in, each to its own topics.

    Run it again when tenants or tokens have changed,
    then have mosquitto read them: systemctl reload mosquitto.
    """
    from tiercel.broker.client.state_dir import default_state_dir

    try:
        written = _write(folder.absolute(), owner, (state_dir or default_state_dir()).absolute())
    except TiercelError as error:
        fail(error.message)
    except (OSError, LookupError) as error:
        fail(f"{folder}: the files cannot be written ({error}); give a folder of yours, or an owner that there is.")
    click.echo("\n".join(map(str, written)))


def _write(folder: Path, owner: str, state_dir: Path) -> list[Path]:
    from tiercel.broker.client.state_dir import read_tokens
    from tiercel.broker.progress import mosquitto
    from tiercel.core.private_files import write_private

    tokens = read_tokens(state_dir)
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    user, password = _of_the_broker(folder / _BROKER_FILE)
    if user in tokens:
        raise wrong_field("mqtt_username", f"{_NAME} is {user!r}, which is a tenant; choose another name")
    content = {
        mosquitto.PASSWORDS: mosquitto.passwords({**tokens, user: password}, secrets.token_bytes),
        mosquitto.RULES: mosquitto.rules(user),
        mosquitto.CONFIGURATION: mosquitto.configuration(folder),
    }
    for name, text in content.items():
        write_private(folder / name, text.encode())
        if owner:
            shutil.chown(folder / name, owner)
    # Stays the caller's: it is for the broker, not for mosquitto.
    write_private(folder / _BROKER_FILE, f"{_NAME}={user}\n{_PASSWORD}={password}\n".encode())
    return [folder / name for name in (*content, _BROKER_FILE)]


def _of_the_broker(kept: Path) -> tuple[str, str]:
    """As whom the broker publishes: as the environment says, or as before."""
    from tiercel.broker.progress.mosquitto import BROKER_USER

    before: dict[str, str] = {}
    if kept.exists():
        before = dict(line.split("=", 1) for line in kept.read_text(encoding="utf-8").splitlines() if "=" in line)
    user = os.environ.get(_NAME) or before.get(_NAME, BROKER_USER)
    return user, os.environ.get(_PASSWORD) or before.get(_PASSWORD) or secrets.token_urlsafe(32)
