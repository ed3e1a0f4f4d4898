"""Reads the YAML that people write: each field once, and nothing nested so deep that it cannot be meant."""

from __future__ import annotations

from typing import Any

import yaml

_DEEPEST = 32
_TRUTH, _TEXT = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:str"


class _Loader(yaml.SafeLoader):
    """Refuses what the language allows, and nobody means."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise yaml.YAMLError(f"it is nested more than {_DEEPEST} deep")
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        names: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in names:
                    raise yaml.YAMLError(f"line {key.start_mark.line + 1} gives {key.value!r} once more")
                names.add(key.value)
                if key.tag == _TRUTH:  # a field that is called "on" is no truth, whatever the language says
                    key.tag = _TEXT
        return node


def read_yaml(text: str) -> Any:
    """What a text in YAML says.

    Raises:
        yaml.YAMLError: It is none, gives a field twice, or is nested too deep.
    """
    return yaml.load(text, _Loader)  # noqa: S506 - it is a safe one
