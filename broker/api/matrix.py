"""Who may call which method, read from the contract itself; a method that does not say so is for nobody."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import tiercel.v1
from tiercel.core.errors import NotAllowedError
from tiercel.core.roles import Role
from tiercel.v1 import rights_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.descriptor import MethodDescriptor


@dataclass(frozen=True, slots=True)
class Rule:
    """What a method says of its callers."""

    roles: frozenset[Role]  # who may call it
    changes: bool  # whether it changes anything
    objects: tuple[str, ...]  # fields of its request, or else of its answer, that name what it is about


class Matrix:
    """The rules of all methods.

    Args:
        rules: By the name of the method as calls carry it, ``/package.Service/Method``.
    """

    def __init__(self, rules: dict[str, Rule]) -> None:
        self._rules = rules

    @classmethod
    @cache
    def read(cls) -> Matrix:
        """What the contract says, which is read once."""
        found = ((name_of(method), _rule(method)) for method in methods())
        return cls({name: rule for name, rule in found if rule is not None})

    def rule(self, method: str) -> Rule:
        """The rule of a method.

        Raises:
            NotAllowedError: It has none.
        """
        found = self._rules.get(method)
        if found is None:
            raise NotAllowedError(
                f"{method} does not say who may call it, so nobody may; please report this as a defect of Tiercel"
            )
        return found

    def check(self, method: str, role: Role) -> Rule:
        """Let only those through whom the method names; returns its rule.

        Raises:
            NotAllowedError: It does not name them.
        """
        rule = self.rule(method)
        roles = rule.roles
        if role not in roles:
            called = method.rpartition("/")[2]
            wanted = " or ".join(sorted(each.value for each in roles))
            raise NotAllowedError(
                f"this is for the role {wanted}, and the token is of the role {role.value} ({called}); ask the "
                "broker's operator for another token"
            )
        return rule


def methods() -> Iterator[MethodDescriptor]:
    """All methods of the contract."""
    for module in pkgutil.iter_modules(tiercel.v1.__path__):
        if module.name.endswith("_pb2"):
            file = importlib.import_module(f"tiercel.v1.{module.name}").DESCRIPTOR
            for service in file.services_by_name.values():
                yield from service.methods


def name_of(method: MethodDescriptor) -> str:
    """As calls carry it."""
    return f"/{method.containing_service.full_name}/{method.name}"


def _rule(method: MethodDescriptor) -> Rule | None:
    options = method.GetOptions()
    if not options.HasExtension(rights_pb2.access):
        return None
    access = options.Extensions[rights_pb2.access]
    roles = (rights_pb2.Role.Name(role).removeprefix("ROLE_").lower() for role in access.roles)
    return Rule(frozenset(Role(role) for role in roles), access.changes, tuple(access.object))
