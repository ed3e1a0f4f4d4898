"""Settings of the processes and fields of a job's spec, from the classes that read them."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ByteSize
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings

from tiercel.broker.client.spec_file import FORMS
from tiercel.broker.client.spec_values import Replicas, Seconds
from tiercel.broker.settings import BrokerSettings
from tiercel.serving.settings import Settings
from tiercel.trainer_agent.settings import AgentSettings
from tools.reference.text import code, described, fields_of, table

_PROCESSES: tuple[tuple[str, str, type[BaseSettings]], ...] = (
    ("Broker", "`tiercel up` gives most of these by its options.", BrokerSettings),
    (
        "Agent",
        "Flags of `python -m tiercel.trainer_agent` and `tiercel join` have the same names, with dashes.",
        AgentSettings,
    ),
    ("Inference server", "Flags of `python -m tiercel.serving` have the same names, with dashes.", Settings),
)
_PLAIN: dict[Any, str] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    Path: "path",
    ByteSize: "size such as `2GiB`",
    Seconds: "time such as `90m`, or seconds",
    Replicas: "integer or `auto`",
}
_BOUNDS = ((Ge, "at least", "ge"), (Gt, "more than", "gt"), (Le, "at most", "le"), (Lt, "less than", "lt"))


def page() -> str:
    """The page of all settings."""
    parts = ["# Settings\n", "Variables of the environment that the processes read; options come first.\n"]
    for title, words, kind in _PROCESSES:
        told, prefix = fields_of(kind), kind.model_config.get("env_prefix", "")
        parts.append(f"## {title}\n\n{words}\n")
        rows = [
            (
                code(prefix + name.upper()),
                described(f"{kind.__name__}.{name}", _without_none(field.description or told.get(name, ""))),
                _kind(field),
                _default(field),
            )
            for name, field in kind.model_fields.items()
        ]
        parts.append(table(("variable", "means", "value", "default"), rows))
    return "\n".join(parts)


def spec_page() -> str:
    """The page of a job's spec."""
    parts = [
        "# Job spec\n",
        (
            "These are the fields of a `tiercel.yaml`, or of a spec in YAML or TOML for `tiercel submit`. Other fields "
            "are refused. On the command line `--set FIELD=VALUE` sets any field. `make docs` writes this page from "
            "the source.\n"
        ),
    ]
    for name, (kind, form) in FORMS.items():
        parts.append(f"## {'Fields of `' + name + '`' if name else 'Fields'}\n")
        parts.append(table(("field", "means", "value", "default"), _rows(kind, form)))
    return "\n".join(parts)


def _rows(kind: type, form: type[BaseModel]) -> list[tuple[str, ...]]:
    told = fields_of(kind)
    return [
        (
            code(field.alias or name),
            described(f"{kind.__name__}.{name}", _without_none(field.description or told.get(name, ""))),
            _kind(field),
            "required" if field.is_required() else _default(field),
        )
        for name, field in form.model_fields.items()
    ]


def _without_none(text: str) -> str:
    """As a sentence; what Python calls None is left out by whoever writes it."""
    plain = text.replace(". None", ". Left out").replace("None", "left out")
    return plain[:1].upper() + plain[1:]


def _kind(field: FieldInfo) -> str:
    bounds = [
        f"{words} {getattr(each, key)}"
        for each in field.metadata
        for kind, words, key in _BOUNDS
        if isinstance(each, kind)
    ]
    known = [words for kind, words in _PLAIN.items() if get_args(kind)[1:] and get_args(kind)[1] in field.metadata]
    return ", ".join([known[0] if known else _words(field.annotation), *bounds])


def _words(kind: Any) -> str:
    """A type in words."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, inner = get_origin(kind), [each for each in get_args(kind) if each is not Ellipsis]
    if origin in (Union, types.UnionType):
        return " or ".join(_words(each) for each in inner if each is not types.NoneType)
    if origin in (list, tuple, frozenset):
        return f"list of: {_words(inner[0])}"
    if isinstance(origin, type) and hasattr(origin, "keys"):
        return "mapping"
    if inner:
        return _words(inner[0]) if hasattr(kind, "__metadata__") else ", ".join(code(each) for each in inner)
    if hasattr(kind, "__members__"):
        return " or ".join(code(each.value) for each in kind)
    return "mapping, see below"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default is PydanticUndefined or field.default is None or isinstance(field.default, BaseModel):
        return ""
    default = field.default
    if isinstance(default, bool):
        return code(str(default).lower())
    if isinstance(default, tuple | list | frozenset | dict):
        return code(", ".join(map(str, default)))
    return code(getattr(default, "value", default))
