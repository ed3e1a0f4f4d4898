"""Code blocks of documents, and commands that sentences name: what they use is there.

Nothing is run here; ``tests/end_to_end/test_documents_run.py`` runs all that can be.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
from pathlib import Path

import click
import pytest
import yaml

from testing.command_line import all_commands, understood
from testing.documents import (
    PAGES,
    REPOSITORY,
    Block,
    blocks_of,
    command_lines_of,
    quoted,
    quoted_commands,
    unknown_words,
)
from tiercel.broker.client.spec_file import FORMS
from tiercel.serving.settings import Settings
from tiercel.trainer_agent.settings import AgentSettings

BLOCKS = [block for page in PAGES for block in blocks_of(page)]
LANGUAGES = {"sh", "console", "python", "yaml", "toml", "json", "diff", ""}
SPEC_FIELDS = {field.alias or name for name, field in FORMS[""][1].model_fields.items()}
OPTIONS = {
    *(name for _, command in all_commands() for one in command.params for name in (*one.opts, *one.secondary_opts)),
    *(f"--{name.replace('_', '-')}" for kind in (AgentSettings, Settings) for name in kind.model_fields),
}
"""Those of the command line, of the agent and of the inference server."""
OPTIONS_OF_OTHERS = {
    # of benchmarks and of the simulation
    *("--nodes", "--kind", "--peer", "--rounds", "--model", "--output", "--seconds-limit", "--quick", "--device"),
    *("--seeds", "--draws", "--swaps", "--penalty", "--connections", "--strict", "--folder", "--rewrite", "--genai"),
    *("--arm", "--schedule", "--repetitions"),
    # of training scripts in examples
    *("--lr", "--seed", "--width", "--epochs", "--reports-per-epoch", "--batch-size", "--learning-rate"),
    # of docker, pip, and what everything has
    *("--gpus", "--index-url", "--replicas", "--help"),
}
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))


def of(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.language in languages]


def test_every_block_is_of_a_language_that_is_checked() -> None:
    assert len(BLOCKS) > 100
    assert {str(block): block.language for block in BLOCKS if block.language not in LANGUAGES} == {}


def test_blocks_of_commands_say_that_they_are_some() -> None:
    commands = re.compile(r"^(?:tiercel|make|pip|python3?|curl) ", re.MULTILINE)
    drawings = ("─", "│")
    bare = [
        block for block in of("") if commands.search(block.text) and not any(sign in block.text for sign in drawings)
    ]
    assert [str(block) for block in bare] == []


@pytest.mark.parametrize("block", of("sh", "console"), ids=str)
def test_commands_of_a_block_are_understood(block: Block) -> None:
    for words in command_lines_of(block):
        try:
            assert understood(words)
        except click.exceptions.Exit:  # --help, --version
            continue
        except click.ClickException as error:
            pytest.fail(f"{block}: tiercel {' '.join(words)}: {error.format_message()}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_sentences_name_are_there_with_their_options(page: Path) -> None:
    unknown = {written: found for written in quoted_commands(page) if (found := unknown_words(written))}
    assert unknown == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_that_sentences_name_are_there(page: Path) -> None:
    named = {option for code in quoted(page) for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", code)}
    assert named - OPTIONS - OPTIONS_OF_OTHERS == set()


@pytest.mark.parametrize("block", of("sh"), ids=str)
def test_a_shell_understands_a_block(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.text, check=False, capture_output=True, text=True, timeout=10)
    assert done.stderr == ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_targets_of_make_are_there(page: Path) -> None:
    named = re.findall(r"(?:^|`)make ([a-z][a-z0-9-]*)", page.read_text(), re.MULTILINE)
    assert set(named) <= TARGETS


@pytest.mark.parametrize("block", of("python"), ids=str)
def test_python_compiles_and_what_it_imports_of_ours_is_there(block: Block) -> None:
    tree = compile(block.text, str(block), "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tiercel"):
            module = importlib.import_module(node.module or "")
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tiercel":
            assert node.attr == "trainer" or hasattr(importlib.import_module("tiercel"), node.attr)


@pytest.mark.parametrize("block", of("yaml"), ids=str)
def test_a_spec_has_only_fields_that_there_are(block: Block) -> None:
    content = yaml.safe_load(block.text)
    assert isinstance(content, dict)
    if content.keys() & {"endpoint", "tiers", "command", "script", "replicas", "requirements", "data"}:
        assert content.keys() <= SPEC_FIELDS


@pytest.mark.parametrize("block", [block for block in of("json") if "…" not in block.text], ids=str)
def test_json_is_json(block: Block) -> None:
    json.loads(block.text)


@pytest.mark.parametrize(
    ("written", "unknown"),
    [
        ("tiercel submit digits/ --wait", []),
        ("tiercel submit --wiat", ["--wiat"]),
        ("tiercel sumbit", ["sumbit"]),
        ("tiercel models pin|remove|forget", ["forget"]),
        ("tiercel node token [--node-id NAME]", []),
    ],
)
def test_an_option_that_is_not_there_is_found(written: str, unknown: list[str]) -> None:
    assert unknown_words(written) == unknown


def test_commands_are_found_within_a_line() -> None:
    block = Block(PAGES[0], 1, "sh", "echo x | tiercel infer m --id 3 # why\ncurl $(tiercel nodes --json | jq)\n", "")
    assert list(command_lines_of(block)) == [["infer", "m", "--id", "3"], ["nodes", "--json"]]
