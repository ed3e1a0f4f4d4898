"""Which handler answers at which address, found from a request's method and target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Generic, TypeVar
from urllib.parse import unquote, urlsplit

from tiercel.core.errors import NotFoundError
from tiercel.serving.rest.messages import HttpRefusedError

H = TypeVar("H")

_REMEMBERED = 1024


@dataclass(frozen=True, slots=True)
class Found(Generic[H]):
    """What a request's method and target lead to."""

    handler: H  # who answers
    parameters: Mapping[str, str]  # the parts of the path that stand for ``{NAME}``, decoded, by that name


class RouteTable(Generic[H]):
    """Addresses and handlers. A fixed part of a path is preferred to ``{NAME}``, which stands for any one part.

    Attributes:
        find: The handler for a method and a target. Raises :class:`.NotFoundError` or, where the method does not fit,
            :class:`.HttpRefusedError`.
    """

    def __init__(self) -> None:
        self._handlers: dict[tuple[str, ...], dict[bytes, H]] = {}
        self.find = lru_cache(_REMEMBERED)(self._find)

    def add(self, method: str, path: str, handler: H) -> None:
        """Have requests of this method and path answered by ``handler``; HEAD goes where GET goes.

        Args:
            method: In capital letters.
            path: From "/" on; a part ``{NAME}`` fits any part, and the handler gets it as a parameter.
            handler: Who answers.

        Raises:
            ValueError: The address has a handler already.
        """
        methods = self._handlers.setdefault(tuple(path.split("/")[1:]), {})
        if methods.setdefault(method.encode(), handler) is not handler:
            raise ValueError(f"{method} {path} has a handler already")
        if method == "GET":
            methods[b"HEAD"] = handler
        self.find.cache_clear()

    def __iter__(self) -> Iterator[tuple[str, str, H]]:
        """Method, path and handler of each address; HEAD goes without saying."""
        for parts, methods in self._handlers.items():
            for method, handler in methods.items():
                if method != b"HEAD":
                    yield method.decode(), "/" + "/".join(parts), handler

    def _find(self, method: bytes, target: bytes) -> Found[H]:
        """The handler for a request; remembered for the targets asked most recently."""
        path, parts = _parts(target)
        fitting = [pattern for pattern in self._handlers if _fits(pattern, parts)]
        if not fitting:
            raise NotFoundError(f"there is nothing at {path[:200]}; GET /v2 tells what this server is")
        pattern = min(fitting, key=lambda pattern: [part.startswith("{") for part in pattern])
        methods = self._handlers[pattern]
        handler = methods.get(method)
        if handler is None:
            allowed = ", ".join(sorted(name.decode() for name in methods))
            raise HttpRefusedError(
                HTTPStatus.METHOD_NOT_ALLOWED,
                f"use {allowed} here, not {method.decode('ascii', 'replace')}",
                f"Allow: {allowed}\r\n".encode(),
            )
        names = {name[1:-1]: part for name, part in zip(pattern, parts, strict=True) if name.startswith("{")}
        return Found(handler, names)


def _parts(target: bytes) -> tuple[str, list[str]]:
    """The path of a target, and its parts decoded."""
    try:
        text = target.decode("ascii")
        if not text.startswith("/"):  # the absolute form is what proxies are asked with, and servers have to take it
            text = urlsplit(text).path
        path = text.partition("?")[0]
        return path, [unquote(part, errors="strict") for part in path.split("/")[1:]]
    except ValueError as error:
        raise NotFoundError("the path is not valid UTF-8") from error


def _fits(pattern: tuple[str, ...], parts: list[str]) -> bool:
    return len(pattern) == len(parts) and all(
        name == part or name.startswith("{") for name, part in zip(pattern, parts, strict=True)
    )
