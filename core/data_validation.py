"""What a job may ask for as data."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tiercel.core.data_sets import (
    MAX_NAME_CHARACTERS,
    MAX_OF_A_JOB,
    MAX_URL_CHARACTERS,
    URL_SCHEMES,
    DataSet,
    is_data_name,
)
from tiercel.core.errors import wrong_field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tiercel.core.jobs import JobSpec

_SHA256 = re.compile(r"[0-9a-f]{64}")


def validate_data(data: tuple[DataSet, ...]) -> None:
    """Check the data sets of a spec.

    Raises:
        InvalidSpecError: There are too many, or one cannot be; ``field`` names it.
    """
    if len(data) > MAX_OF_A_JOB:
        raise wrong_field("data", f"has {len(data)} entries; at most {MAX_OF_A_JOB} are taken")
    names = [each.name for each in data]
    for index, name in enumerate(names):
        if not is_data_name(name):
            raise wrong_field(
                f"data[{index}].name",
                f"{name!r} is not a data set's name; use 1 to {MAX_NAME_CHARACTERS} of a-z, 0-9 and '-', beginning "
                "with a letter or digit",
            )
        if name in names[:index]:
            raise wrong_field(f"data[{index}].name", f"{name!r} is there twice; ask for it once")
        _validate_source(f"data[{index}]", data[index])


def data_hashes(spec: JobSpec, told: Mapping[str, str]) -> dict[str, str]:
    """What a node says of the data that it got for a job, as far as it can be."""
    names = {each.name for each in spec.data if each.url}
    return {name: sha256 for name, sha256 in told.items() if name in names and _SHA256.fullmatch(sha256)}


def _validate_source(field: str, data: DataSet) -> None:
    if data.sha256 and not data.url:
        raise wrong_field(f"{field}.sha256", "is given without a url; what a node offers is its operator's")
    if data.sha256 and not _SHA256.fullmatch(data.sha256):
        raise wrong_field(f"{field}.sha256", "is not 64 of 0-9 and a-f")
    if not data.url:
        return
    if len(data.url) > MAX_URL_CHARACTERS or not data.url.isascii() or not data.url.isprintable() or " " in data.url:
        raise wrong_field(
            f"{field}.url", f"has more than {MAX_URL_CHARACTERS} characters, or some that a URL has to quote"
        )
    try:
        parts = urlsplit(data.url)
        is_complete = bool(parts.path.strip("/")) and (parts.scheme == "file") != bool(parts.hostname)
        has_user, _ = "@" in parts.netloc, parts.port
    except ValueError:
        raise wrong_field(f"{field}.url", "is not a URL") from None
    if parts.scheme not in URL_SCHEMES or "::" in data.url:
        raise wrong_field(f"{field}.url", f"begins with none of {', '.join(f'{each}://' for each in URL_SCHEMES)}")
    if not is_complete:
        raise wrong_field(
            f"{field}.url", "names no file or folder of a host; give all of it, like https://host/path/file.npz"
        )
    if has_user:
        raise wrong_field(f"{field}.url", "has a user or a password in it, which everybody who sees the job would read")
