"""The SDK and the training library, from their docstrings and signatures."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
from collections.abc import Iterator
from typing import Any, get_args

import tiercel
import tiercel.broker.client
import tiercel.trainer
from tools.reference.text import Docstring, code, described, docstring_of, fields_of, inline, paragraphs, table

_MODULE = re.compile(r"\b(?:tiercel|collections|datetime|typing|pathlib|numpy|torch)(?:\.\w+)*\.(?=\w)")
_QUOTED = re.compile(r": '([^']*)'")
_LONGEST_LINE = 100


def page() -> str:
    """The page of the SDK."""
    parts = [
        "# Python SDK\n",
        (
            "What `import tiercel` has. `SyncClient` and `SyncEndpointClient` have the same functions as `Client` and "
            "`EndpointClient`, without `await`; of these only what differs is told of.\n"
        ),
    ]
    homes = {name: getattr(tiercel, name) for name in dir(tiercel) if _is_public(name, getattr(tiercel, name))}
    further = {name: getattr(tiercel.broker.client, name) for name in tiercel.broker.client.__all__}
    parts += [_thing(f"tiercel.{name}", thing) for name, thing in homes.items()]
    parts.append("# What the SDK returns\n\nThese are in `tiercel.broker.client`.\n")
    parts += [_thing(name, thing) for name, thing in further.items() if name not in homes]
    return "\n".join(parts)


def _is_public(name: str, thing: Any) -> bool:
    """Whether it is one of ours: a package has what it imports for itself among its names."""
    return not name.startswith("_") and getattr(thing, "__module__", "").startswith("tiercel.")


def trainer_page() -> str:
    """The page of the training library."""
    parts = ["# Training library\n", "What a training script imports: `import tiercel.trainer`.\n"]
    for name in sorted(tiercel.trainer.__all__):
        thing = getattr(tiercel.trainer, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            parts.append(_thing(f"tiercel.trainer.{name}", thing))
    return "\n".join(parts)


def _thing(name: str, thing: Any) -> str:
    if not callable(thing):  # a union
        return f"## {name}\n\nOne of {', '.join(code(each.__name__) for each in get_args(thing))}.\n"
    if not inspect.isclass(thing):
        return f"## {name}\n\n{_function(name, thing)}"
    if issubclass(thing, enum.Enum):
        values = ", ".join(code(each.value) for each in thing)
        return f"## {name}\n\n{_text(name, docstring_of(thing))}\nOne of {values}.\n"
    doc = docstring_of(thing)
    parts = [f"## {name}\n", _text(name, doc)]
    parts.append(_fields(name, thing, doc))
    parts += [f"### {name.rpartition('.')[2]}.{each}\n\n{_function(each, member)}" for each, member in _members(thing)]
    return "\n".join(parts)


def _text(name: str, doc: Docstring) -> str:
    described(name, doc.text)
    return paragraphs(doc.text)


def _fields(name: str, thing: type, doc: Docstring) -> str:
    """The fields of a data class, or what a class is made of and has."""
    told = fields_of(thing) | doc.entries("Args")
    if not dataclasses.is_dataclass(thing):
        return table(("name", "what it is"), [(code(each), inline(text)) for each, text in told.items()])
    rows = [
        (code(field.name), code(_type(field.type)), described(f"{name}.{field.name}", told.get(field.name, "")))
        for field in dataclasses.fields(thing)
        if not field.name.startswith("_")
    ]
    return table(("field", "type", "what it is"), rows)


def _members(thing: type) -> Iterator[tuple[str, Any]]:
    """Functions and properties of a class and of what it is made of; of a blocking client its own alone."""
    told: set[str] = set()
    for part in thing.__mro__:
        if not part.__module__.startswith("tiercel.") or ("sync" in part.__module__ and part is not thing):
            continue
        for name, member in vars(part).items():
            is_told = isinstance(member, property | classmethod | staticmethod) or inspect.isfunction(member)
            if is_told and not name.startswith("_") and name not in told:
                told.add(name)
                yield name, member


def _function(name: str, function: Any) -> str:
    is_property = isinstance(function, property)
    inner = function.fget if is_property else inspect.unwrap(getattr(function, "__func__", function))
    doc = docstring_of(inner)
    shown = f"{name.rpartition('.')[2]}{_signature(inner, is_property)}"
    is_async = inspect.iscoroutinefunction(inner) and not is_property
    parts = [f"```python\n{'async ' if is_async else ''}{shown}\n```\n", _text(name, doc)]
    parts.append(table(("argument", "what it is"), [(code(k), inline(v)) for k, v in doc.entries("Args").items()]))
    for title in ("Returns", "Yields", "Raises"):
        for what, text in doc.sections.get(title, {}).items():
            parts.append(f"{title}: {code(what) + ': ' if what else ''}{inline(text)}\n")
    return "\n".join(part for part in parts if part)


def _signature(function: Any, is_property: bool) -> str:
    signature = inspect.signature(function)
    own = [one for one in signature.parameters.values() if one.name not in ("self", "cls")]
    result = "" if signature.return_annotation is inspect.Signature.empty else _type(signature.return_annotation)
    arrow = f" -> {result}" if result else ""
    if is_property:
        return f": {result}"
    words = [_MODULE.sub("", _QUOTED.sub(r": \1", str(one))) for one in own]
    short = f"({', '.join(words)}){arrow}"
    if len(short) <= _LONGEST_LINE:
        return short
    return "(\n" + "".join(f"    {word},\n" for word in words) + f"){arrow}"


def _type(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return _MODULE.sub("", text).replace("'", "")
