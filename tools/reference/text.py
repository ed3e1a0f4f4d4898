"""From docstrings and comments to Markdown."""

from __future__ import annotations

import ast
import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import ModuleType

_SECTIONS = ("Args", "Attributes", "Raises", "Returns", "Yields")
_ROLE = re.compile(r":[a-z]+:`[~.]*([^`]+)`")
_CODE = re.compile(r"(`[^`]*`)")
_SPECIAL = re.compile(r"([<>|*])")


class UndescribedError(Exception):
    """Something that the reference lists has no description in the source."""


@dataclass(frozen=True, slots=True)
class Docstring:
    """A docstring of Google's form, taken apart."""

    text: str  # what stands before its sections
    # By their title the entries of each: a name, or "" where there is none, and its text.
    sections: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def entries(self, *titles: str) -> dict[str, str]:
        """The entries of these sections together."""
        return {name: text for title in titles for name, text in self.sections.get(title, {}).items()}


def docstring_of(thing: object) -> Docstring:
    """The docstring of a module, class or function, never an inherited one."""
    doc = inspect.cleandoc(getattr(thing, "__doc__", None) or "")
    parts = re.split(rf"^({'|'.join(_SECTIONS)}):\n", doc, flags=re.MULTILINE)
    bodies = zip(parts[1::2], parts[2::2], strict=True)
    return Docstring(parts[0].strip(), {title: _entries(inspect.cleandoc("\n" + body)) for title, body in bodies})


def constants_of(module: ModuleType) -> dict[str, str]:
    """The texts below a module's constants, by their names."""
    found: dict[str, str] = {}
    for one, text in pairwise(ast.parse(inspect.getsource(module)).body):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(text, ast.Expr):
            found[one.target.id] = str(ast.literal_eval(text.value))
    return found


def fields_of(kind: type) -> dict[str, str]:
    """What is said of a class's fields: in its docstring, and in comments behind a field or right above it."""
    found: dict[str, str] = {}
    for part in reversed(kind.__mro__):
        if part.__module__.partition(".")[0] == "tiercel":
            found |= _commented(textwrap.dedent(inspect.getsource(part))) | docstring_of(part).entries("Attributes")
    return found


def _commented(source: str) -> dict[str, str]:
    """The comments at the fields of a class, by their names."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0]: token for token in tokens if token.type == tokenize.COMMENT}
    alone = {line for line, token in comments.items() if not token.line[: token.start[1]].strip()}
    (kind,) = ast.parse(source).body
    found: dict[str, str] = {}
    for one in kind.body if isinstance(kind, ast.ClassDef) else ():
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            begin = one.lineno
            while begin - 1 in alone:
                begin -= 1
            lines = [
                comments[line].string.removeprefix("#")
                for line in range(begin, (one.end_lineno or one.lineno) + 1)
                if line in comments
            ]
            found[one.target.id] = one_line(" ".join(lines))
    return found


def _entries(body: str) -> dict[str, str]:
    """The entries of a section; lines that are further in belong to the one before."""
    found: dict[str, str] = {}
    for entry in re.split(r"\n(?=\S)", body.strip()):
        name, colon, text = entry.partition(": ")
        named = bool(colon) and re.fullmatch(r"[\w.*]+", name) is not None
        found[name if named else ""] = one_line(text if named else found.get("", "") + " " + entry)
    return found


def one_line(text: str) -> str:
    """The text without line breaks."""
    return " ".join(text.split())


def inline(text: str) -> str:
    """Words of a docstring as Markdown: what is code there is code, and nothing else means anything."""
    plain = _ROLE.sub(r"`\1`", text).replace("``", "`")
    parts = _CODE.split(plain)
    parts[::2] = [_SPECIAL.sub(r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def paragraphs(text: str) -> str:
    """A docstring's text as Markdown: paragraphs, and drawings behind ``::`` as blocks of code."""
    pieces: list[str] = []
    for piece in text.split("\n\n"):
        if piece.startswith(("    ", "  ")) or "──" in piece:
            pieces.append(f"```\n{piece}\n```")
        elif piece.strip() != "::":
            pieces.append(inline(one_line(piece)).removesuffix(":") + (":" if piece.endswith("::") else ""))
    return "\n\n".join(pieces) + "\n"


def described(name: str, text: str) -> str:
    """The description of what is called so, as Markdown.

    Raises:
        UndescribedError: There is none.
    """
    if not text.strip():
        raise UndescribedError(f"{name} has no description; write it in the source")
    return inline(one_line(text))


def code(text: object) -> str:
    """As code; "" for nothing."""
    return f"`{text}`" if str(text) else ""


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, or nothing without rows."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    head = [f"| {' | '.join(titles)} |", f"|{' --- |' * len(titles)}"]
    return "\n".join([*head, *lines]) + "\n\n" if lines else ""
