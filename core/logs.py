"""Log lines of broker, agent and inference server: text for people, or one JSON object a line for programs.

Whatever is logged, a line stays one line: names from outside cannot pretend to be another one. Secrets that got into a
message are not written.
"""

from __future__ import annotations

import contextvars
import json
import logging
import re
import textwrap
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from tiercel.core.current_span import span_ids

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LogFormat = Literal["text", "json"]
IDS: Final = frozenset({"delivery", "endpoint", "job", "model", "node", "request", "run", "version"})
"""What a JSON line names beside its message, where it is known; also as ``extra=`` of a call of a logger."""

MAX_CHARACTERS: Final = 32 * 1024
"""Of a message, and of what is told of an exception."""

_ids: contextvars.ContextVar[Mapping[str, str]] = contextvars.ContextVar("log_ids", default=MappingProxyType({}))

# Whoever finds one in a log could use it; what names a token may be written.
_SECRETS: Final = (
    (re.compile(r"(tcl_[a-z]{1,12}_[0-9a-f]{12}_)[0-9A-Za-z]{43}(_[0-9a-f]{8})?"), r"\1***"),
    (re.compile(r"(tj1\.[\w-]{43}\.[0-9a-f]{16}\.)[\w-]{43}"), r"\1***"),
    (re.compile(r"(\bBearer\s+)[\w.~+/=-]+", re.IGNORECASE), r"\1***"),
    (re.compile(r"(\w://[^\s/:@]*:)[^\s/@]+@"), r"\1***@"),
)
# Each would begin a line, or take one's end away from who reads it.
_CONTROLS: Final = {
    number: f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"
    for number in (*range(9), *range(10, 32), *range(127, 160), 0x2028, 0x2029)
} | {10: "\\n", 13: "\\r"}


def configure(form: LogFormat, handlers: Sequence[logging.Handler] = (), **always: str) -> None:
    """Have this process log.

    Args:
        form: How lines are written.
        handlers: Where to; standard error where there are none.
        always: Ids that are the same on all lines, such as the ``node``.
    """
    told = list(handlers) or [logging.StreamHandler()]
    for handler in told:
        handler.setFormatter(JsonLines(always) if form == "json" else TextLines())
    logging.basicConfig(level=logging.INFO, handlers=told)


def context_of(task_name: str) -> contextvars.Context:
    """What a task is to be started in, so that its lines, and those of tasks that it starts, name what it is about.

    Args:
        task_name: Kind and id, like ``run demo-1``; any other name is about nothing in particular.
    """
    context = contextvars.copy_context()
    ids = _ids_in(task_name)
    if ids:
        context.run(_ids.set, {**_ids.get(), **ids})
    return context


def redacted(text: str) -> str:
    """The text without the secrets that can be known by their form, and of bounded length."""
    if len(text) > MAX_CHARACTERS:
        text = f"{text[:MAX_CHARACTERS]}... ({len(text) - MAX_CHARACTERS} characters more)"
    for pattern, instead in _SECRETS:
        text = pattern.sub(instead, text)
    return text


class TextLines(logging.Formatter):
    """Time, level, logger and message; what is told of an exception follows, indented."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The first line."""
        message = record.getMessage().encode("utf-8", "backslashreplace").decode()
        record.message = redacted(message).translate(_CONTROLS)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """The lines after it."""
        told = super().formatException(ei).encode("utf-8", "backslashreplace").decode()
        return textwrap.indent(redacted(told), "  ", lambda _: True)


class JsonLines(logging.Formatter):
    """One object a line: ``time`` (UTC), ``level``, ``logger``, ``message``, ids, and ``exception`` where there is one.

    While a span of OpenTelemetry is current, whoever began it, its ids are among them.

    Args:
        always: Ids that are the same on all lines.
    """

    def __init__(self, always: Mapping[str, str]) -> None:
        super().__init__()
        self._always = dict(always)

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        at = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": redacted(record.getMessage()),
            **self._always,
            **span_ids(),
            **_ids.get(),
            **{name: redacted(str(value)) for name, value in vars(record).items() if name in IDS},
        }
        if record.exc_info:
            line["exception"] = redacted(self.formatException(record.exc_info))
        return json.dumps(line)


def _ids_in(task_name: str) -> dict[str, str]:
    kind, _, name = task_name.partition(" ")
    match kind:
        case "job" | "node" | "endpoint" | "model":
            return {kind: name}
        case "run":
            return {"run": name, "job": name.rpartition("-")[0]}
        case "delivery":
            # Only here: some processes import as little as they can.
            from tiercel.core.endpoints import job_of_delivery

            return {"delivery": name, "job": job_of_delivery(name)}
    return {}
