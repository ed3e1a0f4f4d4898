"""The reference has everything that there is, and nothing without a description."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import click
import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from testing.command_line import all_commands
from tiercel.broker.api.matrix import methods
from tiercel.broker.cli.app import app
from tiercel.broker.cli.commands import COMMANDS
from tiercel.core.jobs import Job
from tiercel.core.shipping import Shipping
from tiercel.core.views import StateEvent
from tools import reference
from tools.reference.contract import Described, section
from tools.reference.text import Docstring, UndescribedError, described, docstring_of, fields_of, inline

ROOT = Path(__file__).parents[3]


@functools.cache
def text_of(page: str) -> str:
    """What has no description is named by the error with which this fails."""
    return {**reference.PAGES, **reference.KEPT}[page]()


def test_every_command_and_option_is_there() -> None:
    text = text_of("cli.md")
    assert {name for name, entry in COMMANDS.items() if entry.home} == set(
        re.findall(r"^### tiercel (.+)$", text, re.MULTILINE)
    )
    options = {name for _, command in all_commands() for one in command.params for name in one.opts if name[0] == "-"}
    assert {name for name in options if f"`{name}" not in text and f", {name}" not in text} == set()


@pytest.mark.parametrize("page", reference.KEPT)
def test_a_page_that_is_kept_is_what_the_source_says(page: str) -> None:
    assert (ROOT / "docs" / page).read_text() == text_of(page), "run 'make docs' and commit the page"


def test_commands_have_their_short_help_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    for _, command in all_commands():
        monkeypatch.setattr(command, "_help_option", None)  # made once, as whoever asks first wants it
    reference.PAGES["cli.md"]()
    for _, command in all_commands():
        option = command.get_help_option(click.Context(command, **app.context_settings))
        assert option is not None
        assert option.opts == ["-h", "--help"]


def test_every_call_of_the_contract_is_there_with_who_may() -> None:
    text = text_of("protocols.md")
    asked = {method.name for method in methods() if f"| `{method.name}` |" not in text}
    assert asked == set()


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("spec.md", ("`retries.back_off`", "time such as `90m`", "`ship`", "`scratch`")),
        ("settings.md", ("`TIERCEL_LEASE_SECONDS`", "`TIERCEL_AGENT_MPS`", "`TIERCEL_SERVING_MAX_PENDING`")),
        ("sdk.md", ("### Client.submit", "## tiercel.SyncClient", "## Curve")),
        ("trainer.md", ("## tiercel.trainer.connect", "### Job.report")),
        ("errors.md", ("`quota_exceeded`", "`RanksError`")),
        ("http.md", ("`POST /v2/models/{model}/infer`", "`GET /api/v1/jobs/{job}/curve`", "`GET /metrics`")),
        ("metrics.md", ("`tiercel_jobs`", "`tiercel_agent_runs`", "`tiercel_model_swaps_total`", "`process_open_fds`")),
        ("topics.md", ("`tiercel/v1/{tenant}/jobs/{job}/tiers/{number}`",)),
    ],
)
def test_pages_are_made_of_what_the_source_says(page: str, words: tuple[str, ...]) -> None:
    assert [word for word in words if word not in text_of(page)] == []


def test_a_docstring_is_taken_apart() -> None:
    def function() -> None:
        """Does something.

        Args:
            first: The first, see :class:`.Other`,
                on two lines.
            second: The ``second``.

        Returns:
            A number: of them.

        Raises:
            ValueError: It is wrong.
        """

    assert docstring_of(function) == Docstring(
        "Does something.",
        {
            "Args": {"first": "The first, see :class:`.Other`, on two lines.", "second": "The ``second``."},
            "Returns": {"": "A number: of them."},
            "Raises": {"ValueError": "It is wrong."},
        },
    )
    assert inline("see :class:`.Other`, ``a|b`` and a|b <c>") == r"see `Other`, `a|b` and a\|b \<c\>"


def test_what_is_said_of_fields_is_found_where_it_stands() -> None:
    assert fields_of(Shipping)["every"].startswith("While it trains, the best model whenever it is better")
    assert fields_of(Job)["run"].startswith("Its present run; of a job that has ended")
    assert fields_of(Job)["tenant"] == "name of the owner"
    assert fields_of(StateEvent).keys() == {"kind", "sequence", "job_id", "tenant", "at", "state", "reason"}


def test_what_has_no_description_is_refused_by_name() -> None:
    with pytest.raises(UndescribedError, match=r"--port has no description; write it in the source"):
        described("tiercel up --port", " \n")


def test_a_field_without_a_comment_is_refused_by_name() -> None:
    field = FieldDescriptorProto(name="target", type=FieldDescriptorProto.TYPE_DOUBLE)
    message = DescriptorProto(name="Tier", field=[field])
    file = FileDescriptorProto(name="tiers.proto", message_type=[message])
    comments = {(12,): "Of tiers.", (4, 0, 2, 0): "What the metric has to reach."}
    assert f"| `{field.name}` | `double` | What the metric has to reach. |" in section(Described(file, comments))
    with pytest.raises(UndescribedError, match=r"Tier\.target has no description; write it in the source"):
        section(Described(file, {(12,): "Of tiers."}))
