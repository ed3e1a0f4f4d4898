"""``tiercel backup`` and ``tiercel restore``: what is saved of a broker, and a broker made of it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from tiercel.broker.cli.output import print_json
from tiercel.broker.cli.parameters import command, json_option, state_dir_option
from tiercel.broker.cli.session import fail, run_to_the_end

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tiercel.broker.store.artefacts.databases import DatabaseCopy


@command("tiercel backup saved.tar")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), help="The file to write.")
@json_option
@state_dir_option
def backup(*, file: Path, as_json: bool, state_dir: Path | None) -> None:
    """Copy database and keys of a broker, which may run, into FILE.

    Whoever has the file can act as anybody: only its owner may read it.
    """
    import sqlite3

    from tiercel.broker.client.state_dir import default_state_dir
    from tiercel.broker.store.saved_state import save
    from tiercel.core.errors import TiercelError

    try:
        names = save(state_dir or default_state_dir(), file)
    except TiercelError as error:
        fail(error.message)
    except (OSError, sqlite3.Error) as error:
        why = getattr(error, "strerror", None) or error
        fail(f"{file} cannot be written ({why}); name a file in a folder of yours that has room.")
    if as_json:
        print_json({"file": str(file), "saved": list(names)})
        return
    click.echo(f"saved {', '.join(names)} in {file}")


@command("tiercel restore saved.tar --artefacts s3://lab/tiercel", "tiercel restore --artefacts /mnt/other/tiercel")
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False), help="As 'backup' wrote it.")
@click.option("--artefacts", metavar="URL", default="", help="Artefact store that has a newer copy of the database.")
@json_option
@state_dir_option
def restore(*, file: Path | None, artefacts: str, as_json: bool, state_dir: Path | None) -> None:
    """Make a state directory of what was saved of a broker: keys from FILE, the database from an artefact store.

    The directory has no broker's database yet.
    """
    from tiercel.broker.client.state_dir import default_state_dir

    folder = state_dir or default_state_dir()
    names, copy, projects, problems = run_to_the_end(_restored(file, artefacts, folder))
    at = datetime.fromtimestamp(copy.at, UTC).isoformat(timespec="seconds") if copy is not None else None
    if as_json:
        told = {"state_dir": str(folder), "restored": list(names), "database_at": at}
        print_json(told | {"projects": projects, "problems": problems})
        return
    click.echo(f"restored {', '.join(names)} in {folder}" + (f"; the database is of {at}" if at else ""))
    if copy is not None:
        click.echo(f"projects that jobs run from: {projects}")
    for problem in problems:
        click.echo(f"Warning: {problem}. Jobs that run from it end with an error; submit them again.", err=True)
    click.echo(
        f"Start it with 'tiercel up --state-dir {folder}' and the --artefacts and --node-id that it had, if any."
    )


class _Restored(NamedTuple):
    """What came back: files, the copy of the database, how many projects, and what did not."""

    names: tuple[str, ...] = ()
    copy: DatabaseCopy | None = None
    projects: int = 0
    problems: Sequence[str] = ()


async def _restored(file: Path | None, artefacts: str, folder: Path) -> _Restored:
    import asyncio

    from tiercel.broker.state_folder import prepare_state_dir, refuse_state_dir
    from tiercel.broker.state_lock import broker_lock
    from tiercel.broker.store.artefacts.opening import open_artefacts
    from tiercel.broker.store.saved_state import (
        DATABASE,
        remove,
        take_from_file,
        take_from_store,
        take_projects,
    )
    from tiercel.core.errors import TiercelError, wrong_field

    if file is None and not artefacts:
        raise wrong_field("file", "name a file that 'tiercel backup' wrote, or an artefact store with --artefacts")
    store = open_artefacts(artefacts) if artefacts else None
    prepare_state_dir(folder)
    found = _Restored()
    with broker_lock(folder):
        if (folder / DATABASE).exists():
            raise wrong_field("state_dir", f"{folder} has a database already; choose an empty folder with --state-dir")
        try:
            if store is not None:
                copy = await take_from_store(store, folder)
                found = _Restored((DATABASE,), copy, *await take_projects(store, folder))
            if file is not None:
                with_database = store is None
                names = await asyncio.to_thread(take_from_file, file, folder, with_database=with_database)
                found = found._replace(names=(*found.names, *names))
        except TiercelError:
            remove(folder, [DATABASE])
            raise
        except OSError as error:
            remove(folder, [DATABASE])
            if file is not None and error.filename == str(file):
                raise wrong_field(
                    "file",
                    f"{file} cannot be read ({error.strerror}); give the path of a file that 'tiercel backup' wrote",
                ) from error
            raise refuse_state_dir(folder, error.strerror or str(error)) from error
        finally:
            if store is not None:
                await store.close()
    return found
