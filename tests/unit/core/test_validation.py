"""Every wrong field of a spec is refused by its name."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testing.jobs import make_spec
from tiercel.core.data_sets import MAX_OF_A_JOB, DataSet
from tiercel.core.errors import InvalidSpecError
from tiercel.core.jobs import Direction, JobSpec, Resources, Script, Tier
from tiercel.core.requirements import MAX_REQUIREMENTS, MAX_REQUIREMENTS_BYTES
from tiercel.core.retraining import Retrain
from tiercel.core.secrets import MAX_SECRETS_OF_A_JOB
from tiercel.core.shipping import Shipping
from tiercel.core.validation import (
    MAX_ACCELERATORS,
    MAX_ARGUMENTS,
    MAX_ARGUMENTS_CHARACTERS,
    MAX_LABELS,
    MAX_MEMORY_BYTES,
    MAX_SCRIPT_BYTES,
    MAX_TIERS,
    MIN_MEMORY_BYTES,
    MIN_SCRATCH_BYTES,
    validate_spec,
)
from tiercel.core.variables import MAX_ENV_BYTES, MAX_VARIABLES


def refused_field(spec: JobSpec) -> str:
    with pytest.raises(InvalidSpecError) as caught:
        validate_spec(spec)
    assert caught.value.message.startswith(f"{caught.value.field}: "), "the sentence begins with the field's name"
    return caught.value.field


def refusal_of(spec: JobSpec) -> InvalidSpecError | None:
    try:
        validate_spec(spec)
    except InvalidSpecError as error:
        return error
    return None


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"script": Script("train.py", b"print(1)"), "module": ""},
        {"module": "", "image": "python:3.12-slim", "runtime": "docker"},
        {"image": "registry.example:5000/team/image@sha256:0123abcd", "runtime": "docker"},
        {"direction": Direction.MIN, "tiers": (Tier(2.0), Tier(-1.0))},
        {"tiers": (Tier(0.5, 3.0, 60.0),)},
        {"arguments": ("--epochs", "3", "")},
        {"labels": {"sweep": "7", "team/owner": ""}},
        {"secrets": ("WANDB_KEY",), "env": {"SEED": "1"}},
        {
            "requirements": (
                "lightning",
                "a.b_c[x, y]>=1.0,<2",
                "d == 1.* ; python_version < '4'",
                "e (>=1)",
                "f!=1.0+cpu",
            )
        },
        {"requirements": (f"a==1.0 --hash=sha256:{'0' * 64} --hash=sha256:{'1' * 64}",), "runtime": "process"},
        {"requirements": ("a",), "runtime": "docker"},
        {"requirements": ("a",), "image": "python:3.12", "runtime": "docker"},
        {"outputs": ("reports/*.html", "tokenizer/", "**")},
        {"env": {"PYTHONPATH": "lib", "_x1": "", "LANG": "de_DE.UTF-8"}},
        {"data": (DataSet("imagenet"), DataSet("imagenet-1k"))},
        {"data": (DataSet("a", "https://host:8443/x.npz?signature=1", "0" * 64), DataSet("b", "file:///mnt/x"))},
        {"data": (DataSet("a", "s3://bucket/folder/"), DataSet("b", "hf://datasets/user/set"))},
        {"resources": Resources(scratch_bytes=MIN_SCRATCH_BYTES)},
        {"endpoint": "a"},
        {"endpoint": "a" * 63},
        {"variant": "small"},
        {"variants": ("fp32", "int8"), "variants_max_loss": 0.0, "replicas": 2},
        {"variants": ("fp16", "int8", "fp32")},
        {"variant": "0" * 32, "tiers": (Tier(0.5), Tier(1.0))},
        {"tiers": (Tier(0.5, deadline_seconds=9.0, hard=True), Tier(1.0))},
        {"ship": Shipping(every=0.01, best_every_seconds=60.0), "replace": True},
        {"ship": Shipping(only_tiers=True)},
        {"retrain": Retrain(0.5), "data": (DataSet("a"), DataSet("b", "https://host/x.npz", "0" * 64))},
        {"retrain": Retrain(0.5, 1.0, 100, 60.0), "variant": "small"},
        {"resources": Resources(0.1, MIN_MEMORY_BYTES)},
        {"resources": Resources(accelerators=MAX_ACCELERATORS, accelerator_memory_bytes=2**33)},
        {"resources": Resources(accelerators=1)},
        {"script": Script("a.py", b"#" * MAX_SCRIPT_BYTES), "module": ""},
    ],
)
def test_accepts_what_makes_sense(changes: dict[str, Any]) -> None:
    validate_spec(make_spec(**changes))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"data": (DataSet("a"), DataSet("a"))}, "data[1].name"),
        ({"tiers": (Tier(0.9, hard=True),)}, "tiers[0].hard"),
        ({"tiers": (Tier(0.9, deadline_seconds=9.0, hard=True),), "queue": True}, "tiers[0].hard"),
        ({"tiers": (Tier(0.9, deadline_seconds=9.0, hard=True),), "every_seconds": 86400.0}, "tiers[0].hard"),
        ({"data": (DataSet("a_b"),)}, "data[0].name"),
        ({"data": (DataSet("a", sha256="0" * 64),)}, "data[0].sha256"),
        ({"data": (DataSet("a", "https://host/x", "0" * 63),)}, "data[0].sha256"),
        ({"data": (DataSet("a", "https://host/x", "A" * 64),)}, "data[0].sha256"),
        *(
            ({"data": (DataSet("a", url),)}, "data[0].url")
            for url in (
                "x.npz",
                "/mnt/x",
                "ssh://host/x",
                "simplecache::https://host/x",
                "https://host/x::file:///etc/passwd",
                "https:///x",
                "https://host/",
                "https://host:port/x",
                "https://me:secret@host/x",
                "https://[::1/x",
                "https://host/a b",
                "https://höst/x",
                "https://host/\x00",
                "file://host/x",
                "https://host/" + "x" * 2048,
            )
        ),
        ({"data": tuple(DataSet(f"d{number}") for number in range(MAX_OF_A_JOB + 1))}, "data"),
        ({"resources": Resources(scratch_bytes=MIN_SCRATCH_BYTES - 1)}, "resources.scratch_bytes"),
        ({"resources": Resources(scratch_bytes=2**63)}, "resources.scratch_bytes"),
        ({"endpoint": ""}, "endpoint"),
        ({"endpoint": "../etc"}, "endpoint"),
        ({"endpoint": "Digits"}, "endpoint"),
        ({"endpoint": "a" * 64}, "endpoint"),
        ({"endpoint": "a\n"}, "endpoint"),
        ({"metric": ""}, "metric"),
        ({"metric": "9lives"}, "metric"),
        ({"metric": "acc uracy"}, "metric"),
        ({"name": "x" * 129}, "name"),
        ({"name": "red\x1b[31m"}, "name"),
        ({"module": ""}, "script"),
        ({"script": Script("train.py", b"x")}, "module"),
        ({"script": Script("../train.py", b"x"), "module": ""}, "script.name"),
        ({"script": Script("train.sh", b"x"), "module": ""}, "script.name"),
        ({"script": Script("-c.py", b"x"), "module": ""}, "script.name"),
        ({"script": Script("train.py", b""), "module": ""}, "script.content"),
        ({"script": Script("train.py", b"\xff\xfe"), "module": ""}, "script.content"),
        ({"script": Script("train.py", b"#" * (MAX_SCRIPT_BYTES + 1)), "module": ""}, "script.content"),
        ({"module": "package..train"}, "module"),
        ({"module": "package.train; rm"}, "module"),
        ({"module": "m" * 300}, "module"),
        ({"runtime": "podman"}, "runtime"),
        ({"image": "x", "runtime": "process"}, "image"),
        ({"image": "--privileged"}, "image"),
        ({"arguments": ("a",) * (MAX_ARGUMENTS + 1)}, "arguments"),
        ({"arguments": ("a" * (MAX_ARGUMENTS_CHARACTERS + 1),)}, "arguments"),
        ({"arguments": ("fine", "n\0t")}, "arguments[1]"),
        ({"labels": {f"n{number}": "" for number in range(MAX_LABELS + 1)}}, "labels"),
        ({"labels": {"-x": "1"}}, "labels"),
        ({"outputs": ("*.html", "../*.html")}, "outputs[1]"),
        ({"max_epochs": 2**32}, "max_epochs"),
        ({"labels": {"x": "1" * 129}}, "labels.x"),
        ({"labels": {"x": "two\nlines"}}, "labels.x"),
        ({"env": {f"N{number}": "" for number in range(MAX_VARIABLES + 1)}}, "env"),
        ({"env": {"A": "1" * MAX_ENV_BYTES}}, "env"),
        ({"env": {"1A": ""}}, "env"),
        ({"env": {"A=B": ""}}, "env"),
        ({"env": {"A\n": ""}}, "env"),
        ({"env": {"": ""}}, "env"),
        ({"env": {"A": "n\0t"}}, "env.A"),
        ({"env": {"A": "\udcff"}}, "env.A"),
        ({"env": {"TIERCEL_RUN_DIR": "/"}}, "env.TIERCEL_RUN_DIR"),
        ({"env": {"LD_PRELOAD": "x.so"}}, "env.LD_PRELOAD"),
        ({"env": {"CUDA_VISIBLE_DEVICES": "0"}}, "env.CUDA_VISIBLE_DEVICES"),
        ({"env": {"PATH": "/"}}, "env.PATH"),
        ({"secrets": tuple(f"N{number}" for number in range(MAX_SECRETS_OF_A_JOB + 1))}, "secrets"),
        ({"secrets": ("A", "A")}, "secrets"),
        ({"requirements": ("a",) * (MAX_REQUIREMENTS + 1)}, "requirements"),
        ({"requirements": ("a" * MAX_REQUIREMENTS_BYTES, "b")}, "requirements"),
        ({"requirements": ("-e .",)}, "requirements"),
        ({"requirements": ("--index-url http://nobody",)}, "requirements"),
        ({"requirements": ("a==1 --index-url http://nobody",)}, "requirements"),
        ({"requirements": ("a ; python_version<'4' --index-url=x",)}, "requirements"),
        ({"requirements": ("a\n--index-url x",)}, "requirements"),
        ({"requirements": ("a @ https://nobody/a.whl",)}, "requirements"),
        ({"requirements": ("./a.whl",)}, "requirements"),
        ({"requirements": ("",)}, "requirements"),
        ({"requirements": ("a",), "image": "python:3.12", "module": ""}, "requirements"),
        ({"secrets": ("A B",)}, "secrets"),
        ({"secrets": ("LD_PRELOAD",)}, "secrets.LD_PRELOAD"),
        ({"secrets": ("A",), "env": {"A": "1"}}, "secrets"),
        ({"tiers": ()}, "tiers"),
        ({"tiers": tuple(Tier(float(n)) for n in range(MAX_TIERS + 1))}, "tiers"),
        ({"tiers": (Tier(0.8), Tier(math.nan))}, "tiers[1].target"),
        ({"tiers": (Tier(math.inf),)}, "tiers[0].target"),
        ({"tiers": (Tier(0.8, 0.0),)}, "tiers[0].value"),
        ({"tiers": (Tier(0.8, math.nan),)}, "tiers[0].value"),
        ({"tiers": (Tier(0.8, 1.0, -1.0),)}, "tiers[0].deadline_seconds"),
        ({"tiers": (Tier(0.8, 1.0, math.inf),)}, "tiers[0].deadline_seconds"),
        ({"tiers": (Tier(0.9), Tier(0.8))}, "tiers[1].target"),
        ({"tiers": (Tier(0.9), Tier(0.9))}, "tiers[1].target"),
        ({"tiers": (Tier(0.8), Tier(0.9)), "direction": Direction.MIN}, "tiers[1].target"),
        ({"resources": Resources(0.0)}, "resources.cpu_cores"),
        ({"resources": Resources(math.nan)}, "resources.cpu_cores"),
        ({"resources": Resources(math.inf)}, "resources.cpu_cores"),
        ({"resources": Resources(1.0, MIN_MEMORY_BYTES - 1)}, "resources.memory_bytes"),
        ({"resources": Resources(1.0, MAX_MEMORY_BYTES + 1)}, "resources.memory_bytes"),
        ({"resources": Resources(accelerators=-1)}, "resources.accelerators"),
        ({"resources": Resources(accelerators=MAX_ACCELERATORS + 1)}, "resources.accelerators"),
        ({"resources": Resources(accelerators=1, accelerator_memory_bytes=-1)}, "resources.accelerator_memory_bytes"),
        ({"resources": Resources(accelerator_memory_bytes=2**30)}, "resources.accelerator_memory_bytes"),
        ({"max_epochs": 0}, "max_epochs"),
        ({"report_timeout_seconds": 0.0}, "report_timeout_seconds"),
        ({"report_timeout_seconds": math.nan}, "report_timeout_seconds"),
        ({"variant": "Small"}, "variant"),
        ({"variant": "a.b"}, "variant"),
        ({"variant": "_a"}, "variant"),
        ({"variant": "a" * 33}, "variant"),
        ({"variant": "small", "direction": Direction.MIN, "tiers": (Tier(0.5),)}, "variant"),
        ({"variant": "small", "tiers": (Tier(0.5), Tier(1.5))}, "variant"),
        ({"variant": "small", "tiers": (Tier(0.0), Tier(0.5))}, "variant"),
        ({"retrain": Retrain(0.0)}, "retrain.budget"),
        ({"retrain": Retrain(math.nan)}, "retrain.budget"),
        ({"retrain": Retrain(1.0, below=0.0)}, "retrain.below"),
        ({"retrain": Retrain(1.0, below=math.nan)}, "retrain.below"),
        ({"retrain": Retrain(1.0, at_most=0)}, "retrain.at_most"),
        ({"retrain": Retrain(1.0, on=("inputs", "delay"))}, "retrain.on"),
        ({"retrain": Retrain(1.0, on=("inputs", "inputs"))}, "retrain.on"),
        ({"retrain": Retrain(1.0, window_seconds=math.inf)}, "retrain.window"),
        ({"retrain": Retrain(1.0), "every_seconds": 3600.0}, "retrain"),
        ({"retrain": Retrain(1.0), "tiers": (Tier(0.5), Tier(1.5))}, "retrain"),
        ({"retrain": Retrain(1.0), "data": (DataSet("b", "https://host/x.npz", "0" * 64),)}, "retrain"),
        ({"variants": ("int4", "fp32")}, "variants"),
        ({"variants": ("int8",)}, "variants"),
        ({"variants": ("fp16",)}, "variants"),
        ({"variants": ("fp32", "FP16")}, "variants"),
        ({"variants": ("fp32", "int8", "int8")}, "variants"),
        ({"variants": ("fp32", "int8"), "variant": "small"}, "variants"),
        ({"variants": ("fp32", "int8"), "direction": Direction.MIN, "tiers": (Tier(0.5),)}, "variants"),
        ({"variants_max_loss": 1.5}, "variants_max_loss"),
        ({"variants_max_loss": float("nan")}, "variants_max_loss"),
        ({"ship": Shipping(every=0.0)}, "ship.every"),
        ({"ship": Shipping(every=math.nan)}, "ship.every"),
        ({"ship": Shipping(every=0.1, only_tiers=True)}, "ship.every"),
        ({"ship": Shipping(best_every_seconds=0.5)}, "ship.best_every"),
        ({"ship": Shipping(best_every_seconds=math.inf)}, "ship.best_every"),
        ({"endpoint_objective_seconds": 0.0}, "endpoint_objective_seconds"),
        ({"endpoint_objective_seconds": -0.1}, "endpoint_objective_seconds"),
        ({"endpoint_objective_seconds": math.nan}, "endpoint_objective_seconds"),
        ({"endpoint_objective_seconds": math.inf}, "endpoint_objective_seconds"),
        ({"endpoint_objective_seconds": 3601.0}, "endpoint_objective_seconds"),
    ],
)
def test_names_the_field_that_is_wrong(changes: dict[str, Any], field: str) -> None:
    assert refused_field(make_spec(**changes)) == field


def test_says_which_way_targets_must_go() -> None:
    with pytest.raises(InvalidSpecError, match=r"direction 'min' that means falling"):
        validate_spec(make_spec(direction=Direction.MIN))
    with pytest.raises(InvalidSpecError, match=r"direction 'max' that means rising"):
        validate_spec(make_spec(tiers=(Tier(0.9), Tier(0.8))))


numbers = st.floats(allow_nan=True, allow_infinity=True)
specs = st.builds(
    JobSpec,
    name=st.text(max_size=140),
    endpoint=st.text(max_size=70) | st.just("digits"),
    metric=st.text(max_size=70) | st.just("accuracy"),
    direction=st.sampled_from(Direction),
    tiers=st.lists(st.builds(Tier, numbers, numbers, st.none() | numbers), max_size=4).map(tuple),
    script=st.none() | st.builds(Script, st.text(max_size=20) | st.just("train.py"), st.binary(max_size=20)),
    module=st.text(max_size=20) | st.just("package.train"),
    image=st.text(max_size=20),
    arguments=st.lists(st.text(max_size=5), max_size=3).map(tuple),
    resources=st.builds(Resources, numbers, st.integers(), st.integers(), st.integers()),
    runtime=st.text(max_size=8) | st.sampled_from(["", "process", "docker"]),
    max_epochs=st.integers(),
    report_timeout_seconds=numbers,
)


@given(specs)
def test_garbage_is_refused_by_field_or_is_sound(spec: JobSpec) -> None:
    """Whatever comes in: either one clear error with a field, or figures that a policy can compute with."""
    refusal = refusal_of(spec)
    if refusal is not None:
        assert refusal.field
        assert refusal.message.startswith(f"{refusal.field}: ")
        return
    figures = [tier.target for tier in spec.tiers] + [tier.value for tier in spec.tiers]
    assert all(map(math.isfinite, [*figures, spec.resources.cpu_cores, spec.report_timeout_seconds]))
    assert spec.tiers


@given(numbers, numbers, st.sampled_from(Direction))
def test_tiers_of_an_accepted_spec_become_harder(first: float, second: float, direction: Direction) -> None:
    spec = replace(make_spec(), direction=direction, tiers=(Tier(first), Tier(second)))
    if refusal_of(spec) is not None:
        assert not (math.isfinite(first) and math.isfinite(second)) or direction.reaches(first, second)
    else:
        assert direction.reaches(second, first)
        assert not direction.reaches(first, second)
