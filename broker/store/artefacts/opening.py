"""Opens the artefact store that a URL names."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from tiercel.broker.store.artefacts.folder import FolderArtefacts
from tiercel.core.errors import InvalidSpecError, wrong_field

if TYPE_CHECKING:
    from tiercel.broker.store.artefacts.contract import Artefacts

_FIELD: Final = "artefacts"
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX: Final = re.compile(r"[A-Za-z0-9!_.'()=-]+(/[A-Za-z0-9!_.'()=-]+)*")
_MAX_PREFIX: Final = 512


def open_artefacts(url: str) -> Artefacts:
    """The artefact store of a URL: ``s3://BUCKET/PREFIX``, ``file:///FOLDER`` or the folder's path alone.

    Nothing is asked yet.

    Raises:
        InvalidSpecError: It names none, or what is needed for it is not installed.
    """
    if url.startswith("/"):
        return FolderArtefacts(Path(url))
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _wrong() from None
    if "@" in parts.netloc:  # and is not repeated here
        raise wrong_field(_FIELD, "credentials do not belong into the URL; put them into the environment or ~/.aws")
    if parts.query or parts.fragment:
        raise _wrong()
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return FolderArtefacts(Path(unquote(parts.path)))
    prefix = parts.path.strip("/")
    is_plain = not prefix or (_PREFIX.fullmatch(prefix) and len(prefix) <= _MAX_PREFIX)
    is_plain = is_plain and not {".", ".."} & set(prefix.split("/"))
    if parts.scheme != "s3" or not _BUCKET.fullmatch(parts.netloc) or not is_plain:
        raise _wrong()
    if importlib.util.find_spec("s3fs") is None:
        raise wrong_field(_FIELD, "S3 needs the package s3fs; install it with: pip install 'tiercel[s3]'")
    # Takes half a second, which nobody else needs to take.
    from tiercel.broker.store.artefacts.s3 import S3Artefacts

    return S3Artefacts(parts.netloc, prefix)


def _wrong() -> InvalidSpecError:
    return wrong_field(_FIELD, "is neither s3://BUCKET/PREFIX nor the absolute path of a folder")
