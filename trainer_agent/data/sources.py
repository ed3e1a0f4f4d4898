"""Where tenants may have a node fetch data from."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from tiercel.core.data_sets import URL_SCHEMES
from tiercel.trainer_agent.errors import RunFailedError

_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class AllowedSources:
    """What is open to tenants beyond what anybody on the internet may read.

    Without any, ``file:`` URLs are refused, http(s) reaches addresses of the internet alone, and stores are asked
    without the node's credentials.
    """

    # URLs that the operator trusts, with all that is below: folders of the node, hosts of its own network, buckets that
    # its credentials open.
    prefixes: tuple[str, ...] = ()

    def check(self, url: str) -> str:
        """The prefix that trusts a URL, or empty for one that gets what anybody gets.

        Raises:
            RunFailedError: Nothing is fetched from there.
        """
        parts = urlsplit(url)
        if parts.scheme not in URL_SCHEMES:
            raise RunFailedError(f"Its node fetches nothing by {parts.scheme}:.")
        for prefix in self.prefixes:
            if _is_below(parts, urlsplit(prefix)):
                return prefix
        if parts.scheme == "file":
            raise RunFailedError(
                f"Its node reads no data from {url}: a file: URL names a place on the node, which its operator has to "
                "allow (--data-sources file:///FOLDER/) or to offer by name (tiercel node data add)."
            )
        return ""


def check_prefix(prefix: str) -> str:
    """The prefix, if it is one.

    Raises:
        ValueError: It is not.
    """
    parts = urlsplit(prefix)
    if parts.scheme not in URL_SCHEMES or (parts.scheme == "file") == bool(parts.netloc) or ".." in parts.path:
        raise ValueError(f"{prefix!r} is no URL to trust; give ones like file:///mnt/shared/ or http://store:9000/")
    return prefix


def shown(url: str) -> str:
    """A URL without what may be secret in it."""
    base, mark, _ = url.partition("?")
    return base.partition("#")[0] + (f"{mark}…" if mark else "")


def file_name(url: str) -> str:
    """What a file from there is called on the node; its ending is kept, since programs go by it."""
    last = posixpath.basename(unquote(urlsplit(url).path))
    kept = "".join(each if (each.isalnum() and each.isascii()) or each in "._-" else "_" for each in last)[-100:]
    return kept if kept.strip(".") else "data"


def _is_below(parts: SplitResult, trusted: SplitResult) -> bool:
    place = (parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme))
    if place != (trusted.scheme, trusted.hostname, trusted.port or _PORTS.get(trusted.scheme)):
        return False
    path, folder = unquote(parts.path), trusted.path.rstrip("/")
    if ".." in path.split("/") or "\\" in path:
        return False
    return path == folder or path.startswith(f"{folder}/")
