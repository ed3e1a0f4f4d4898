"""Specs from files and flags."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tiercel import (
    DataSet,
    Direction,
    InvalidSpecError,
    JobSpec,
    Resources,
    Retrain,
    Script,
    Shipping,
    Tier,
    load_spec,
    parse_spec,
)
from tiercel.broker.client.spec_file import as_written
from tiercel.core.validation import validate_spec

YAML = """
name: digits
endpoint: digits
variant: small
script: train.py
arguments: ["--seed", "1"]
metric: accuracy
direction: max
tiers: [{target: 0.90}, {target: 0.97, value: 2, deadline_seconds: 600}]
resources: {cpu_cores: 1.5, memory: 2GiB, accelerators: 1, accelerator_memory: 8GiB, scratch: 10GiB}
runtime: process
max_epochs: 30
replace: true
ship: {every: 0.01, best_every: 60}
retrain: {at_most: 5, window: 2h, budget: 2, on: [accuracy, inputs]}
labels: {sweep: "7"}
data: [imagenet, {name: digits, url: "https://host/x.npz"}]
outputs: ["reports/*.html"]
env: {SEED: 7, RATE: 0.5, NAME: x}
warm: false
ranks: 1
endpoint_objective_seconds: 0.05
"""
TOML = """
name = "digits"
endpoint = "digits"
variant = "small"
script = "train.py"
arguments = ["--seed", "1"]
metric = "accuracy"
direction = "max"
tiers = [{target = 0.90}, {target = 0.97, value = 2, deadline_seconds = 600}]
runtime = "process"
max_epochs = 30
endpoint_objective_seconds = 0.05
labels = {sweep = "7"}
data = ["imagenet", {name = "digits", url = "https://host/x.npz"}]
outputs = ["reports/*.html"]
env = {SEED = 7, RATE = 0.5, NAME = "x"}
warm = false
ranks = 1
replace = true
ship = {every = 0.01, best_every = 60}
retrain = {below = "promise", at_most = 5, window = "2h", budget = 2, on = ["accuracy", "inputs"]}
[resources]
cpu_cores = 1.5
memory = "2GiB"
accelerators = 1
accelerator_memory = "8GiB"
scratch = "10GiB"
"""
SPEC = JobSpec(
    name="digits",
    endpoint="digits",
    metric="accuracy",
    direction=Direction.MAX,
    tiers=(Tier(0.9), Tier(0.97, value=2.0, deadline_seconds=600.0)),
    script=Script("train.py", b"print(1)"),
    arguments=("--seed", "1"),
    resources=Resources(
        cpu_cores=1.5, memory_bytes=2 << 30, accelerators=1, accelerator_memory_bytes=8 << 30, scratch_bytes=10 << 30
    ),
    runtime="process",
    max_epochs=30,
    endpoint_objective_seconds=0.05,
    variant="small",
    replace=True,
    labels={"sweep": "7"},
    data=(DataSet("imagenet"), DataSet("digits", "https://host/x.npz")),
    outputs=("reports/*.html",),
    env={"SEED": "7", "RATE": "0.5", "NAME": "x"},
    warm=False,
    ranks=1,
    ship=Shipping(every=0.01, best_every_seconds=60.0),
    retrain=Retrain(2.0, at_most=5, window_seconds=7200.0, on=("accuracy", "inputs")),
)
VALUES: dict[str, Any] = {"endpoint": "digits", "module": "m", "metric": "loss", "direction": "min", "tiers": [0.5]}


@pytest.mark.parametrize(("name", "text"), [("job.yaml", YAML), ("job.yml", YAML), ("job.toml", TOML)])
def test_a_file_is_read_with_its_script(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "train.py").write_text("print(1)")

    assert load_spec(tmp_path / name) == SPEC


def test_what_is_left_out_has_a_default() -> None:
    assert parse_spec(VALUES) == JobSpec(
        name="digits", endpoint="digits", metric="loss", direction=Direction.MIN, tiers=(Tier(0.5),), module="m"
    )


def test_flags_replace_fields_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(YAML)
    (tmp_path / "train.py").write_text("print(1)")
    (tmp_path / "other.py").write_text("print(2)")

    spec = load_spec(tmp_path / "job.yaml", {"tiers": ["0.5"], "script": str(tmp_path / "other.py")})

    assert spec.tiers == (Tier(0.5),)
    assert spec.script == Script("other.py", b"print(2)")
    assert spec.max_epochs == 30


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"tiers": []}, "tiers", "is empty; give one at least"),
        ({"tiers": 0.5}, "tiers", "0.5 is not a list; write it in brackets"),
        ({"outputs": "a"}, "outputs", "'a' is not a list"),
        ({"resources": 4}, "resources", "4 is not fields with values; write {name: value}"),
        ({"warm": "perhaps"}, "warm", "'perhaps' is not true or false"),
        ({"warm_start": 12345678}, "warm_start", "12345678 is not text; put it in quotes"),
        ({"retrain": {"below": 0.8}}, "retrain.budget", "is missing"),
        ({"retrain": {"budget": 1, "below": "promised"}}, "retrain.below", "number"),
        ({"retrain": {"budget": 1, "windows": "1d"}}, "retrain.windows", "did you mean window?"),
        ({"tiers": [{"target": 0.9}, {"target": "much"}]}, "tiers[1].target", "number"),
        ({"tiers": [{"value": 1}]}, "tiers[0].target", "is missing"),
        ({"tiers": [{"target": 1, "worth": 2}]}, "tiers[0].worth", "no field"),
        ({"direction": "up"}, "direction", "'up' is not 'max' or 'min'"),
        (
            {"resources": {"memory": "much"}},
            "resources.memory",
            "'much' is not a size; write one such as 512MiB or 4GiB",
        ),
        ({"resources": {"accelerators": "all"}}, "resources.accelerators", "'all' is not a whole number"),
        (
            {"resources": {"accelerators": 1, "accelerator_memory": "half"}},
            "resources.accelerator_memory",
            "is not a size",
        ),
        ({"resources": {"cpu_cores": "all"}}, "resources.cpu_cores", "number"),
        ({"max_epoch": 3}, "max_epoch", "is no field of a job's spec; did you mean max_epochs?"),
        ({"tiers": [{"target": 1, "deadline": 2}]}, "tiers[0].deadline", "did you mean deadline_seconds?"),
        ({"resources": {"cores": 2}}, "resources.cores", "did you mean cpu_cores?"),
        ({"colour": "red"}, "colour", "there are name, endpoint, metric, direction"),
        ({"endpoint_objective_seconds": "soon"}, "endpoint_objective_seconds", "number"),
        ({"script": "missing.py"}, "script", "cannot be read"),
        ({"arguments": "--seed 1"}, "arguments", "list"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(InvalidSpecError, match=message) as caught:
        parse_spec({**VALUES, **changes})

    assert caught.value.field == field
    assert caught.value.message.startswith(field)


@pytest.mark.parametrize(
    ("field", "written"),
    [
        ("resources.memory_bytes", "resources.memory"),
        ("retry_exit_codes", "retries.exit_codes"),
        ("tiers[1].target", "tiers[1].target"),
        ("add_nodes[0].memory_bytes", "add_nodes[0].memory_bytes"),
        ("", ""),
    ],
)
def test_a_field_has_the_name_that_a_file_has_for_it(field: str, written: str) -> None:
    assert as_written(field) == written


def test_a_field_that_is_written_otherwise_is_not_called_missing() -> None:
    values = {key: value for key, value in VALUES.items() if key != "metric"}
    with pytest.raises(InvalidSpecError, match=r"^metrik: is no field of a job's spec; did you mean metric"):
        parse_spec({**values, "metrik": "accuracy"})


@pytest.mark.parametrize("name", ["endpoint", "metric", "tiers"])
def test_a_missing_field_is_named(name: str) -> None:
    with pytest.raises(InvalidSpecError, match=f"{name}: is missing"):
        parse_spec({key: value for key, value in VALUES.items() if key != name})


@pytest.mark.parametrize(
    ("direction", "metrics"),
    [
        ("max", ("accuracy", "val_acc", "test/F1", "r2", "roc_auc", "top5-accuracy")),
        ("min", ("loss", "val_loss", "RMSE", "error_rate", "perplexity", "mae")),
    ],
)
def test_a_direction_that_is_left_out_is_the_usual_one_of_the_metric(direction: str, metrics: tuple[str, ...]) -> None:
    values = {key: value for key, value in VALUES.items() if key != "direction"}
    found = {metric: parse_spec({**values, "metric": metric}).direction.value for metric in metrics}
    assert found == dict.fromkeys(metrics, direction)
    assert parse_spec({**VALUES, "metric": "accuracy", "direction": "min"}).direction is Direction.MIN


@pytest.mark.parametrize("metric", ["speed", "accuracy_loss", "n"])
def test_a_direction_that_nobody_can_know_is_asked_for(metric: str) -> None:
    values = {key: value for key, value in VALUES.items() if key != "direction"}
    with pytest.raises(InvalidSpecError, match=r"direction: is missing, .*'max'.*'min'") as caught:
        parse_spec({**values, "metric": metric})
    assert caught.value.field == "direction"


def test_a_script_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes(b"#" * (1024 * 1024 + 1))

    with pytest.raises(InvalidSpecError, match="1 MiB") as caught:
        parse_spec({**VALUES, "script": str(tmp_path / "train.py")})
    assert caught.value.field == "script"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("job.yaml", "tiers: [", r"job.yaml is not YAML: line 1: expected the node content, but found '<stream end>'"),
        ("job.toml", "tiers = [", "is not TOML"),
        ("job.yaml", "", "holds no fields"),
        ("train.py", "import torch\n", "is a Python script; 'tiercel init .*train.py' writes a spec for it"),
        ("job.yaml", "- a list", "holds no fields"),
        ("job.yaml", "endpoint: a\nship: {on_tier: true, on_tier: false}", "line 2 gives 'on_tier' once more"),
        ("job.yaml", "endpoint: a\nendpoint: b", "line 2 gives 'endpoint' once more"),
        ("job.yaml", "a: " + "[" * 5000 + "]" * 5000, "nested more than 32 deep"),
        ("job.toml", "a = " + "[" * 5000 + "]" * 5000, "is not TOML"),
        ("job.yaml", "a: " + "b" * 2**20, "more than 1048576 bytes"),
    ],
)
def test_a_file_that_is_no_spec(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)

    with pytest.raises(InvalidSpecError, match=message) as caught:
        load_spec(tmp_path / name)
    assert caught.value.field == "file"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpecError, match="cannot be read"):
        load_spec(tmp_path / "missing.yaml")


def test_variables_are_taken_from_the_callers_environment_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SET_HERE", "a=b c")
    monkeypatch.delenv("NOT_SET", raising=False)
    assert parse_spec(VALUES | {"env": ["SET_HERE"]}).env == {"SET_HERE": "a=b c"}
    with pytest.raises(InvalidSpecError, match="env: NOT_SET is not set here; set it before you submit"):
        parse_spec(VALUES | {"env": ["SET_HERE", "NOT_SET"]})


@pytest.mark.parametrize(("env", "message"), [("A=1", "env: is neither"), ({"A": True}, "env.A: True is no text")])
def test_variables_that_are_none_are_refused(env: object, message: str) -> None:
    with pytest.raises(InvalidSpecError, match=message):
        parse_spec(VALUES | {"env": env})


def test_the_specs_of_the_document_about_data_can_be_submitted(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[4] / "docs" / "data.md").read_text()
    specs = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert specs
    (tmp_path / "train.py").write_text("print(1)")
    for number, spec in enumerate(specs):
        (tmp_path / f"{number}.yaml").write_text(spec)
        read = load_spec(tmp_path / f"{number}.yaml")
        validate_spec(read)
        assert read.data


PROJECT = {"endpoint": "digits", "metric": "accuracy", "tiers": [0.9]}


@pytest.mark.parametrize("name", ["tiercel.yaml", "tiercel.yml", "tiercel.toml"])
def test_a_folder_with_a_spec_is_the_jobs_project(tmp_path: Path, name: str) -> None:
    text = 'endpoint = "digits"\nmetric = "accuracy"\ntiers = [0.9]\n'
    text += 'script = "src/train.py"\narguments = ["--lr", "0.1"]\n'
    (tmp_path / name).write_text(text if name.endswith("toml") else text.replace(" =", ":"))
    spec = load_spec(tmp_path)
    assert spec.project is not None
    assert (spec.project.folder, spec.project.sha256) == (str(tmp_path), "")
    assert (spec.command, spec.script, spec.arguments) == (("python", "src/train.py"), None, ("--lr", "0.1"))


def test_a_specs_project_is_relative_to_its_file_and_a_changes_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "job.yaml").write_text(yaml.safe_dump({**PROJECT, "project": "..", "command": "python x.py"}))
    project = load_spec(tmp_path / "specs" / "job.yaml").project
    assert project is not None
    assert Path(project.folder).resolve() == tmp_path
    monkeypatch.chdir(tmp_path)
    project = load_spec(tmp_path / "specs" / "job.yaml", {"project": "other"}).project
    assert project is not None
    assert project.folder == str(tmp_path / "other")


def test_a_folder_without_a_spec_is_a_project_where_flags_say_the_rest(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpecError, match=r"has no tiercel\.yaml that says what to train"):
        load_spec(tmp_path)
    spec = load_spec(tmp_path, {**PROJECT, "command": "bash run.sh"})
    assert spec.project is not None
    assert spec.command == ("bash", "run.sh")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("python train.py --name 'two words'", ("python", "train.py", "--name", "two words")),
        (["python", "train.py", "a b"], ("python", "train.py", "a b")),
        ("bash -c 'python a.py && python b.py'", ("bash", "-c", "python a.py && python b.py")),
    ],
)
def test_a_command_is_split_as_a_shell_would(command: object, words: tuple[str, ...]) -> None:
    assert parse_spec({**PROJECT, "project": ".", "command": command}).command == words


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"command": "python a.py && python b.py"}, "command: no shell reads it, so that '&&' has no meaning"),
        ({"command": "python a.py > log"}, "command: no shell reads it, so that '>' has no meaning"),
        ({"command": "python 'a.py"}, "command: cannot be split into words (No closing quotation)"),
        ({"command": "python a.py", "script": "a.py"}, "script: is given beside a command"),
    ],
)
def test_a_command_that_would_do_something_else_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        parse_spec({**PROJECT, "project": ".", **changes})
    assert caught.value.message.startswith(message)
    assert caught.value.field == message.partition(":")[0]


def test_a_program_in_a_change_takes_the_place_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "tiercel.yaml").write_text(yaml.safe_dump({**PROJECT, "command": "python one.py"}))
    assert load_spec(tmp_path, {"module": "package.two"}).command == ()
    assert load_spec(tmp_path, {"script": "two.py"}).command == ("python", "two.py")
