"""The contract's messages and calls, from protos/ and the comments there."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from tiercel.broker.api.matrix import Matrix
from tiercel.core.errors import NotAllowedError
from tools.reference.text import code, described, inline, one_line, table

PROTOS = Path(__file__).resolve().parents[2] / "protos"
_SERVICE, _METHOD, _MESSAGE, _FIELD, _NESTED, _NESTED_ENUM, _ENUM, _VALUE, _SYNTAX = 6, 2, 4, 2, 3, 4, 5, 2, 12
_Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Described:
    """A file of the contract with its comments."""

    file: FileDescriptorProto
    # What stands before, or else behind, each thing, by its path in the file's descriptor.
    comments: Mapping[_Path, str]

    def comment(self, path: _Path) -> str:
        """The comment of one thing; "" for none."""
        return self.comments.get(path, "")


@cache
def files() -> tuple[Described, ...]:
    """All files of the contract, by their names."""
    paths = sorted(str(path) for path in PROTOS.rglob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "contract.bin"
        command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(PROTOS), "--include_source_info"]
        subprocess.run([*command, f"--descriptor_set_out={target}", *paths], check=True, timeout=60)
        found = FileDescriptorSet.FromString(target.read_bytes())
    return tuple(Described(file, _comments(file)) for file in found.file)


def _comments(file: FileDescriptorProto) -> dict[_Path, str]:
    return {
        tuple(place.path): place.leading_comments.strip() or place.trailing_comments.strip()
        for place in file.source_code_info.location
    }


@cache
def calls() -> Mapping[str, str]:
    """What each call does, by ``Service/Method``.

    Raises:
        UndescribedError: The contract does not say it.
    """
    return {
        f"{service.name}/{method.name}": described(
            f"{service.name}.{method.name}", each.comment((_SERVICE, at, _METHOD, number))
        )
        for each in files()
        for at, service in enumerate(each.file.service)
        for number, method in enumerate(service.method)
    }


def who_may(package: str, method: str) -> str:
    """The roles that may call a method, as the broker looks it up; "" where no role is asked for."""
    try:
        rule = Matrix.read().rule(f"/{package}.{method}")
    except NotAllowedError:
        return ""
    return ", ".join(sorted(code(role.value) for role in rule.roles))


def page() -> str:
    """The page of the protocols."""
    parts = [
        "# Protocols\n",
        (
            "The gRPC services with their messages. `tiercel.v1` is spoken between clients, broker, "
            "agents and training scripts; `inference` is the Open Inference Protocol, which inference servers speak.\n"
        ),
    ]
    parts += [section(each) for each in files()]
    return "\n".join(parts)


def section(each: Described) -> str:
    """What the page says of one file.

    Raises:
        UndescribedError: The file, a call or a field has no comment.
    """
    file = each.file
    parts = [f"## {file.name}\n", described(file.name, each.comment((_SYNTAX,))) + "\n"]
    for service in file.service:
        parts.append(f"### {service.name}\n")
        rows = [
            (
                code(method.name),
                calls()[f"{service.name}/{method.name}"],
                _message(method.input_type, method.client_streaming),
                _message(method.output_type, method.server_streaming),
                who_may(file.package, f"{service.name}/{method.name}"),
            )
            for method in service.method
        ]
        parts.append(table(("call", "does", "takes", "answers", "for the role"), rows))
    for number, message in enumerate(file.message_type):
        parts += _messages(each, message, (_MESSAGE, number), "")
    for number, enum in enumerate(file.enum_type):
        parts.append(_enum(each, enum, (_ENUM, number), ""))
    return "\n".join(parts)


def _messages(each: Described, message: DescriptorProto, path: _Path, within: str) -> Iterator[str]:
    if message.options.map_entry:
        return
    name = within + message.name
    rows = [
        (
            code(field.name),
            code(_type(field, message)),
            described(f"{name}.{field.name}", each.comment((*path, _FIELD, number))),
        )
        for number, field in enumerate(message.field)
    ]
    words = each.comment(path)
    yield f"#### {name}\n"
    yield inline(one_line(words)) + "\n" if words else ""
    yield table(("field", "type", ""), rows) or "No fields.\n"
    for number, nested in enumerate(message.nested_type):
        yield from _messages(each, nested, (*path, _NESTED, number), f"{name}.")
    for number, enum in enumerate(message.enum_type):
        yield _enum(each, enum, (*path, _NESTED_ENUM, number), f"{name}.")


def _enum(each: Described, enum: EnumDescriptorProto, path: _Path, within: str) -> str:
    rows = [
        (code(value.name), inline(one_line(each.comment((*path, _VALUE, number)))))
        for number, value in enumerate(enum.value)
    ]
    words = inline(one_line(each.comment(path)))
    return "\n".join([f"#### {within}{enum.name}\n", f"{words}\n", table(("value", ""), rows)])


def _type(field: FieldDescriptorProto, message: DescriptorProto) -> str:
    name = (
        field.type_name.rpartition(".")[2] or FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    )
    for entry in message.nested_type:
        if entry.options.map_entry and entry.name == name:
            key, value = (_type(each, entry) for each in entry.field)
            return f"map<{key}, {value}>"
    return f"repeated {name}" if field.label == FieldDescriptorProto.Label.LABEL_REPEATED else name


def _message(name: str, is_stream: bool) -> str:
    return f"{'stream of ' if is_stream else ''}{code(name.rpartition('.')[2])}"
