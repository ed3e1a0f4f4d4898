"""What a training script says of itself, read from its syntax: nothing of it is run."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

_FRAMEWORKS = (
    "torch",
    "lightning",
    "pytorch_lightning",
    "keras",
    "tensorflow",
    "jax",
    "sklearn",
    "xgboost",
    "lightgbm",
)
_METRIC = re.compile(r"\b([A-Za-z_]*(?:acc|accuracy|loss|f1|auc|rmse|mae|mse|perplexity|bleu)[A-Za-z_]*)\b\s*[:=]?\s*$")
_MOST = 32


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of the script."""

    flag: str  # its longest name
    default: str = ""  # as it is written; empty where there is none
    help: str = ""  # what the script says of it
    parser: str = ""  # the variable that has its parser


@dataclass(frozen=True, slots=True)
class ScriptFacts:
    """What was found; each part at most 32 of them, in the order of the script."""

    framework: str  # what trains, by its import name; empty if it is none that is known
    connects: bool  # whether it calls ``connect`` of the trainer library
    reported: tuple[str, ...]  # names of metrics that it reports
    printed: tuple[str, ...]  # names of metrics that it prints
    arguments: tuple[Argument, ...]  # of its ``argparse`` parsers
    imports: tuple[str, ...]  # top-level modules that are not Python's own
    subcommands: tuple[tuple[str, str], ...] = ()  # of its ``argparse`` parsers: name, and the variable of its parser
    notebook_lines: tuple[int, ...] = ()  # lines that only a notebook can run

    def with_modules(self, others: Iterable[ScriptFacts]) -> ScriptFacts:
        """With what modules of its project say, whose command lines are not its own."""
        every = [self, *others]
        return replace(
            self,
            framework=next((each.framework for each in every if each.framework), ""),
            connects=any(each.connects for each in every),
            reported=_first(name for each in every for name in each.reported),
            printed=_first(name for each in every for name in each.printed),
            imports=_first(name for each in every for name in each.imports),
        )


def read_script(text: str) -> ScriptFacts:
    """Read a script.

    Raises:
        SyntaxError: It is not Python.
        ValueError: It has null bytes.
        RecursionError: It is nested too deep.
    """
    nodes = list(ast.walk(ast.parse(text)))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    imports = _first(name for node in nodes for name in _imported(node))
    reports = (call for call in calls if _called(call) == "report")
    return ScriptFacts(
        framework=next((name for name in _FRAMEWORKS if name in imports), ""),
        connects=any(_called(call) == "connect" for call in calls) and "tiercel" in imports,
        reported=_first(word.arg for call in reports for word in call.keywords if word.arg),
        printed=_first(name for call in calls if _called(call) in {"print", "info", "log"} for name in _told(call)),
        arguments=tuple(each for call in calls if (each := _argument(call)))[:_MOST],
        imports=tuple(name for name in imports if name not in sys.stdlib_module_names),
        subcommands=tuple(found for node in nodes if (found := _subcommand(node)))[:_MOST],
        notebook_lines=tuple(sorted({call.lineno for call in calls if _called(call) == "get_ipython"}))[:_MOST],
    )


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _imported(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=names):
            yield from (alias.name.partition(".")[0] for alias in names)
        case ast.ImportFrom(module=str(module), level=0):
            yield module.partition(".")[0]


def _told(call: ast.Call) -> Iterator[str]:
    """Names of metrics right before a value: of an f-string, a format, a text with another argument, a keyword's."""
    for argument in call.args:
        for part in ast.walk(argument):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                pieces = re.split(r"%[-+0-9.]*[a-z]|\{[^}]*\}|[,;|]", part.value)
                yield from (found[1].lower() for piece in pieces if (found := _METRIC.search(piece)))
        name = _value_of(argument)
        if _METRIC.fullmatch(name):
            yield name.lower()
    yield from (word.arg for word in call.keywords if word.arg and _METRIC.fullmatch(word.arg))


def _value_of(argument: ast.expr) -> str:
    """The variable of ``loss`` and ``loss.item()``; empty for anything else."""
    match argument:
        case ast.Name(id=name) | ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="item")):
            return name
    return ""


def _subcommand(node: ast.AST) -> tuple[str, str] | None:
    """Name and variable of ``variable = subparsers.add_parser("name")``."""
    match node:
        case ast.Assign(
            targets=[ast.Name(id=variable)], value=ast.Call(args=[ast.Constant(value=str(name)), *_]) as call
        ):
            return (name, variable) if _called(call) == "add_parser" else None
    return None


def _argument(call: ast.Call) -> Argument | None:
    names = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    if _called(call) != "add_argument" or not names:
        return None
    words = {word.arg: word.value for word in call.keywords}
    default, told = words.get("default"), words.get("help")
    return Argument(
        max(names, key=len),
        ast.unparse(default) if default is not None else "",
        str(told.value) if isinstance(told, ast.Constant) else "",
        call.func.value.id if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) else "",
    )


def _first(words: Iterator[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(words))[:_MOST]
