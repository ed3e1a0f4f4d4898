"""How commands come to a job's spec: a folder, a file, and what is said beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tiercel.broker.cli.exit_codes import USAGE
from tiercel.broker.cli.session import fail
from tiercel.core.errors import TiercelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tiercel.core.jobs import JobSpec


def changed(flags: dict[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """The flags, and what ``--set FIELD=VALUE`` says; ends the command with a sentence where that is nothing."""
    import yaml

    from tiercel.broker.client.spec_yaml import read_yaml

    for change in changes:
        field, is_given, value = change.partition("=")
        *above, last = field.split(".")
        if not (is_given and last):
            fail(f"--set {change!r}: write FIELD=VALUE, such as --set resources.memory=4GiB.", USAGE)
        place = flags
        for name in above:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                fail(f"--set {change!r}: {name} has no fields.", USAGE)
        try:
            place[last] = read_yaml(value)
        except yaml.YAMLError:
            place[last] = value
    return flags


def spec_of(file: Path | None, flags: dict[str, Any]) -> JobSpec:
    """The spec of a folder, a file or flags; ends the command with a sentence where it is none."""
    # pydantic and gRPC are imported for those who submit, not for 'tiercel --help'.
    from tiercel.broker.client.spec_file import load_spec, parse_spec

    if file is None and not flags:
        fail(
            "Give a project's folder, a spec's file, or flags such as --script, --endpoint, --metric and --tier.", USAGE
        )
    try:
        return load_spec(file, flags) if file is not None else parse_spec(flags)
    except TiercelError as error:
        fail(error.message)
