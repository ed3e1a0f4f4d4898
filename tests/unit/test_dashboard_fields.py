"""What the dashboard's pages read of the broker's answers is in the types that those answers are made of.

The pages name variables after what they hold: where one is called ``job``, ``quota`` and so on, its fields have to be
those of that type, at any depth. Where a name says nothing (``each``, ``row``), the field has to be one of any answer.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest

from testing.documents import REPOSITORY
from tiercel.core import views
from tiercel.core.endpoint_views import EndpointInfo, ReplicaInfo, VariantInfo, VersionInfo
from tiercel.core.endpoints import DelayWindow
from tiercel.core.file_views import FileInfo
from tiercel.core.jobs import JobSpec
from tiercel.core.lineage import Lineage
from tiercel.core.models import Difference
from tiercel.core.policies import PolicyChoice
from tiercel.core.predictions import PredictionRecord
from tiercel.core.quotas import Quota
from tiercel.core.shares import Share
from tiercel.core.starts import Start
from tiercel.core.status import ClusterStatus, Problem
from tiercel.core.tiers import TierStatus
from tiercel.core.what_if import JobPrediction, TierPrediction, WhatIf
from tiercel.v1 import what_if_pb2

BROKER: Final = REPOSITORY / "broker" / "dashboard"
SCRIPTS: Final = {path.name: path for path in sorted((BROKER / "static" / "js").rglob("*.js"))}
WORD: Final = r"[A-Za-z_]\w*"
READ: Final = re.compile(rf"(?<![\w.$])({WORD})((?:\??\.{WORD})+)")
TAKEN: Final = re.compile(rf"\{{([\w\s,:]+)\}} = ({WORD})(?=[;\s)])")
SNAKE: Final = re.compile(r"(?<![\w/])[a-z]+(?:_[a-z0-9]+)+(?![\w/])")
# Variables of which a name says nothing, and what the pages themselves give such things.
ANYTHING: Final = frozenset({"each", "one", "other", "row"})
OWN: Final = frozenset({"colour", "dash", "key", "label", "level", "said", "status", "stepped", "width", "words"})
OPEN_INFERENCE: Final = frozenset(
    {"finish_reason", "max_tokens", "model_version", "output_ids", "text_input", "text_output"}
)
# What any list, text or number has.
OF_JAVASCRIPT: Final = frozenset(
    {"at", "every", "filter", "find", "flatMap", "join", "length", "localeCompare", "map", "replaceAll", "some"}
)


def fields_of(kind: type) -> dict[str, Any]:
    """The keys of a type's JSON, and what is in each."""
    hints = typing.get_type_hints(kind)
    shown = {each.name: hints[each.name] for each in dataclasses.fields(kind) if each.metadata.get("shown", True)}
    return {**fields_of(shown.pop("tier")), **shown} if kind is TierStatus else shown


def keys_in(file: str, *functions: str) -> dict[str, Any]:
    """The keys of objects that functions of a module of the broker write; of all of them where none is named."""
    tree = ast.parse((REPOSITORY / file).read_text(encoding="utf-8"))
    made = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert set(functions) <= {each.name for each in made}
    looked_at = [each for each in made if not functions or each.name in functions]
    literals = [each for function in looked_at for each in ast.walk(function) if isinstance(each, ast.Dict)]
    return {str(key.value): Any for each in literals for key in each.keys if isinstance(key, ast.Constant)}


READS, TRIALS = "broker/dashboard/reads.py", "serving/models/canary/trials.py"
# What a variable of this name holds, besides what a page puts beside it.
HOLDS: Final[Mapping[str, dict[str, Any]]] = {
    "device": fields_of(views.AcceleratorInfo) | fields_of(Share),
    "endpoint": fields_of(EndpointInfo),
    "job": fields_of(views.JobInfo),
    "load": keys_in(READS, "_job_share", "_endpoint_share", "_share") | dict.fromkeys(("part", "look")),
    "node": fields_of(views.NodeInfo) | keys_in(READS, "_node"),
    "others": keys_in(READS, "_together"),
    "place": fields_of(ReplicaInfo),
    "policy": fields_of(PolicyChoice) | keys_in("broker/dashboard/routes.py", "_policy"),
    "quota": fields_of(Quota),
    "session": keys_in("broker/dashboard/site.py", "_session"),
    "share": fields_of(Share),
    "spec": fields_of(JobSpec),
    "start": fields_of(Start),
    "status": fields_of(ClusterStatus) | {"problems": tuple[Problem, ...]},
    "tier": fields_of(TierStatus),
    "trial": keys_in(TRIALS),
    "variant": fields_of(VariantInfo),
    "version": fields_of(VersionInfo),
    "window": fields_of(DelayWindow) | {"uPlot": None},  # the browser's has the plotting library
}
ELSEWHERE: Final[Mapping[tuple[str, str], dict[str, Any]]] = {
    ("audit.js", "row"): keys_in("core/audit.py", "to_json"),
    ("prediction.js", "job"): fields_of(JobPrediction),
    ("prediction.js", "tier"): fields_of(TierPrediction),
    ("usage.js", "job"): keys_in("broker/dashboard/accounts.py", "_of_job"),
}
ROOTS: Final = (
    WhatIf,
    PredictionRecord,
    Lineage,
    FileInfo,
    views.DecisionInfo,
    views.ProgressEvent,
    views.ShareEvent,
    Problem,
    Difference,
)


def inner(hint: Any) -> list[type]:
    """The types of ours within an annotation."""
    if dataclasses.is_dataclass(hint):
        return [typing.cast("type", hint)]
    return [kind for each in typing.get_args(hint) for kind in inner(each)]


def of_any_answer() -> set[str]:
    """Every key of every answer, and of what is asked."""
    modules = [path.relative_to(REPOSITORY) for path in BROKER.glob("*.py")]
    names = {name for path in modules for name in keys_in(str(path))}
    for path in modules:  # and in the lines that read a request, what they ask it for
        told = (REPOSITORY / path).read_text(encoding="utf-8")
        names |= {name for line in re.findall(r".*\basked\..*", told) for name in re.findall(r'"([a-z_]+)"', line)}
    names |= {*what_if_pb2.Changes.DESCRIPTOR.fields_by_name, *OPEN_INFERENCE}
    ahead = list(ROOTS)
    for held in (*HOLDS.values(), *ELSEWHERE.values()):
        names |= held.keys()
        ahead += [kind for hint in held.values() for kind in inner(hint)]
    seen: set[type] = set()
    while ahead:
        if (kind := ahead.pop()) not in seen:
            seen.add(kind)
            names |= fields_of(kind).keys()
            ahead += [each for hint in fields_of(kind).values() for each in inner(hint)]
    return names


def wrong_reads(script: str, name: str, names: set[str]) -> Iterator[str]:
    """Reads of fields that what they are read of has not."""
    for base, path in (*READ.findall(script), *taken_apart(script)):
        fields = path.replace("?", "").strip(".").split(".")
        held = ELSEWHERE.get((name, base), HOLDS.get(base))
        if held is None and base in ANYTHING and fields[0] not in names | OWN | OF_JAVASCRIPT:
            yield f"{base}{path}"
        for field in fields:
            if held is None or field in OF_JAVASCRIPT:
                break
            if field not in held:
                yield f"{base}{path}"
                break
            if held[field] is not Any:  # else an object that is written out in the same module
                kinds = inner(held[field])
                held = fields_of(kinds[0]) if kinds and typing.get_origin(held[field]) is not tuple else None
    yield from set(SNAKE.findall(script)) - names


def taken_apart(script: str) -> Iterator[tuple[str, str]]:
    """The reads of ``const { a, b: c } = job``, as ``("job", ".a")`` and ``("job", ".b")``."""
    for fields, base in TAKEN.findall(script):
        for field in fields.split(","):
            yield base, f".{field.partition(':')[0].strip()}"


def code(name: str) -> str:
    """A script without its imports and comments."""
    return re.sub(r"^import .*$|//.*$|/\*.*?\*/", "", SCRIPTS[name].read_text(encoding="utf-8"), flags=re.MULTILINE)


@pytest.fixture(scope="module")
def names() -> set[str]:
    return of_any_answer()


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_field_that_a_page_reads_is_in_the_answers(name: str, names: set[str]) -> None:
    assert list(wrong_reads(code(name), name, names)) == []


@pytest.mark.parametrize(
    "script",
    [
        "quota.core_time",
        "quota.limit",
        "const { classes, fair } = quota;",
        "job?.spec.metrics",
        "job.share?.weight",
        "({ held, cheap }) => held_since",
        "rows.map((each) => each.outcomes)",
        "tier.changed",
        "trial.compared.same",
    ],
)
def test_a_field_of_another_name_is_found(script: str, names: set[str]) -> None:
    assert list(wrong_reads(script, "now.js", names)) != []
