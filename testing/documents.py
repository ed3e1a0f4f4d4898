"""The code blocks of documents, and what in them can be checked without running anything."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from testing.command_line import command_of

REPOSITORY = Path(__file__).resolve().parents[1]
PAGES = (REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").rglob("*.md")))
_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^>]+) -->\n)?(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^ *```",
    re.MULTILINE | re.DOTALL,
)
_COMMAND = re.compile(r"(?:^|[|;(]|&&|\$ )\s*(tiercel .+)")
_END = frozenset({"|", ";", "&&", "||", "&", "<", ">", ">>", "2>&1", ")"})


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int  # of its first line of text
    language: str  # as behind the fence; empty for none
    text: str
    reason: str  # why nobody runs it, or empty

    def __str__(self) -> str:
        return f"{self.page.relative_to(REPOSITORY)}:{self.line}"


def blocks_of(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order, without what they are indented by."""
    content = page.read_text()
    for found in _BLOCK.finditer(content):
        text = re.sub(rf"^{found['indent']}", "", found["text"], flags=re.MULTILINE)
        line = content.count("\n", 0, found.start("text")) + 1
        yield Block(page, line, found["language"], text, found["reason"] or "")


def command_lines_of(block: Block) -> Iterator[list[str]]:
    """The words behind ``tiercel`` of each of its commands, also within a pipe or a substitution."""
    for line in block.text.replace("\\\n", " ").splitlines():
        for found in _COMMAND.finditer(line):
            lexer = shlex.shlex(found[1], posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            yield from _first(lexer)


def _first(lexer: shlex.shlex) -> Iterator[list[str]]:
    words: list[str] = []
    for word in lexer:
        if word in _END:
            break
        words.append(word)
    yield words[1:]


def quoted(page: Path) -> Iterator[str]:
    """The code that its sentences and tables quote."""
    prose = _BLOCK.sub("", page.read_text())
    yield from (" ".join(found.split()) for found in re.findall(r"`([^`]+)`", prose))


def quoted_commands(page: Path) -> Iterator[str]:
    """The commands that its sentences and tables name."""
    yield from (code for code in quoted(page) if code.startswith("tiercel "))


def unknown_words(written: str) -> list[str]:
    """What a sentence's command names that there is not: the command itself, or options."""
    words = re.sub(r"[\[\]…,]", " ", written).split()[1:]
    groups = words[0].split("|") if words else []
    unknown: list[str] = []
    for first in groups or [""]:
        command, rest = command_of([first, *words[1:]] if first else [])
        if isinstance(command, click.Group) and rest and re.fullmatch(r"[a-z][a-z-]*(\|[a-z-]+)*", rest[0]):
            before = words[: len(words) - len(rest)]
            unknown += [name for name in rest[0].split("|") if command_of([*before, name])[1]]
        known = {name for one in _all_of(command) for name in (*one.opts, *one.secondary_opts)}
        unknown += [word for word in re.findall(r"(?<![\w-])--[a-z][a-z-]*", " ".join(rest)) if word not in known]
    return unknown


def _all_of(command: click.Command) -> Iterator[click.Parameter]:
    """The parameters of a command; of a group those of all below it."""
    context = click.Context(command, help_option_names=["-h", "--help"])
    yield from command.get_params(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                yield from _all_of(below)
