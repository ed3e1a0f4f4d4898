"""``tiercel init``: what is read of a script, and that the spec that comes of it is one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from tiercel import load_spec
from tiercel.broker.cli import app
from tiercel.broker.cli.script_reading import read_script

EXAMPLE = Path(__file__).parents[4] / "examples" / "digits"
PLAIN = """
import argparse, os
import transformers.models
from helper import load
p = argparse.ArgumentParser()
p.add_argument("-l", "--lr", type=float, default=1e-3, help="Step\\nsize: 5")
os.remove("precious")
print(f"epoch {1} val_loss: {0.5:.3f}")
print("test accuracy", 0.9)
"""


def test_what_a_script_reports_prints_takes_and_imports() -> None:
    facts = read_script(PLAIN)
    assert facts.printed == ("val_loss", "accuracy")
    assert [(each.flag, each.default) for each in facts.arguments] == [("--lr", "0.001")]
    assert facts.imports == ("transformers", "helper")
    assert not facts.connects


def test_the_example_is_understood_and_its_spec_is_taken(tmp_path: Path) -> None:
    folder = tmp_path / "My Digits!"
    shutil.copytree(EXAMPLE, folder)
    (folder / "tiercel.yaml").unlink()
    result = CliRunner().invoke(app, ["init", str(folder), "--json"])

    told = json.loads(result.stdout)
    assert (told["framework"], told["connects"], told["metric"]) == ("torch", True, "accuracy")
    spec = load_spec(folder)
    assert (spec.endpoint, spec.metric, spec.requirements) == ("my-digits", "accuracy", ())
    assert spec.command == ("python", "train.py")


def test_of_subcommands_the_one_that_trains_is_run_with_its_own_arguments(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("""
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--seed", default=0)
subs = parser.add_subparsers(required=True)
test = subs.add_parser("test")
test.add_argument("weights")
fit = subs.add_parser("training", help="trains")
fit.add_argument("--rate", default=0.1)
print("loss", 1.0)
""")
    assert CliRunner().invoke(app, ["init", str(tmp_path)]).exit_code == 0
    assert load_spec(tmp_path).command == ("python", "main.py", "training")
    text = (tmp_path / "tiercel.yaml").read_text()
    assert "# or one of its other subcommands: test\n" in text
    assert all(flag in text for flag in ("--seed", "--rate"))
    assert "weights" not in text


@pytest.mark.parametrize("named", ["", "learner/__main__.py", "learner"])
def test_a_package_is_run_as_one_from_the_folder_that_it_is_in(tmp_path: Path, named: str) -> None:
    package = tmp_path / "learner"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("from .loop import run\nrun()\n")
    (package / "loop.py").write_text("import tiercel.trainer as t\ndef run(): t.connect(1).report(rmse=t.f())\n")
    result = CliRunner().invoke(app, ["init", str(tmp_path / named)])
    assert result.exit_code == 0, result.output
    assert "connect()" not in result.output, "a module of it does"
    spec = load_spec(tmp_path)
    assert (spec.command, spec.metric) == (("python", "-m", "learner"), "rmse")


def test_what_only_a_notebook_can_run_is_told_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "analysis.py").write_text("loss = f()\nget_ipython().system('ls')\nprint(1, loss.item())\n")
    result = CliRunner().invoke(app, ["init", str(tmp_path)])
    assert "get_ipython() in analysis.py: delete line 2." in result.output
    assert load_spec(tmp_path).metric == "loss"


def test_a_script_is_never_run_and_a_spec_never_written_over(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PLAIN)
    (tmp_path / "helper.py").write_text("")
    first = CliRunner().invoke(app, ["init", str(script)])
    again = CliRunner().invoke(app, ["init", str(script)])

    assert first.exit_code == 0, first.output
    assert "connect()" in first.output
    spec = load_spec(tmp_path)
    assert (spec.metric, spec.direction.value) == ("val_loss", "min")
    assert "requirements: [transformers]" in (tmp_path / "tiercel.yaml").read_text()
    assert again.exit_code == 1
    assert "--force" in again.output


def test_an_odd_name_of_a_script_is_quoted(tmp_path: Path) -> None:
    script = tmp_path / "my train: 'a' #1.py"
    script.write_text("print('loss', 1)")
    assert CliRunner().invoke(app, ["init", str(script)]).exit_code == 0
    assert load_spec(tmp_path).command == ("python", script.name)


@pytest.mark.parametrize("content", ["def (", "x = 1\x00", "(" * 5000])
def test_what_is_no_python_is_a_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "train.py").write_text(content)
    result = CliRunner().invoke(app, ["init", str(tmp_path)])
    assert result.exit_code == 1
    assert len(result.output.splitlines()) == 1
    assert not (tmp_path / "tiercel.yaml").exists()
