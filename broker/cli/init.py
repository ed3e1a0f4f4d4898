"""``tiercel init``: a first tiercel.yaml, from what a training script says of itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tiercel.broker.cli.exit_codes import USAGE
from tiercel.broker.cli.output import clean, print_json
from tiercel.broker.cli.parameters import command, json_option
from tiercel.broker.cli.session import fail
from tiercel.core.jobs import Direction
from tiercel.core.metric_names import usual_direction

if TYPE_CHECKING:
    from tiercel.broker.cli.script_reading import ScriptFacts

_SPEC = "tiercel.yaml"
_MOST_BYTES = 1024 * 1024
_MOST_MODULES = 50
_USUAL_NAMES = ("train.py", "main.py", "training.py", "run.py")
# What an installed Tiercel with its extra for training brings along, by import name.
_THERE = frozenset({"tiercel", "torch", "numpy", "onnx", "onnxruntime", "onnxscript", "sklearn", "mlxtend"})


@command("tiercel init digits/", "tiercel init digits/train.py")
@click.argument(
    "path", default=".", type=click.Path(path_type=Path), metavar="[DIR|SCRIPT]", help="The script, or its folder."
)
@click.option("--force", is_flag=True, help="Write it anew where there is one.")
@json_option
def init(path: Path, *, force: bool, as_json: bool) -> None:
    """Write a tiercel.yaml beside a training script, which is read and never run."""
    script = path if path.is_file() else _script_in(path)
    folder = _folder_of(script)
    spec = folder / _SPEC
    if spec.exists() and not force:
        fail(f"{spec} is there already; edit it, or give --force to write it anew.")
    facts = _read_project(script, folder)
    metric = next(iter((*facts.reported, *facts.printed)), "")
    try:
        spec.write_text(_text(script, folder, facts, metric), encoding="utf-8")
    except OSError as error:
        fail(f"{spec} cannot be written ({error.strerror}); choose a folder of yours.")
    if as_json:
        print_json(_told(spec, facts, metric))
        return
    click.echo(f"Wrote {clean(str(spec))}. Read its comments, then: tiercel submit {clean(str(spec.parent))}")
    if not facts.connects:
        click.echo(f"{script.name} does not call tiercel.trainer.connect() yet: docs/training-scripts.md says how.")
    if facts.notebook_lines:
        lines = ", ".join(map(str, facts.notebook_lines))
        click.echo(f"Only a notebook can run what calls get_ipython() in {script.name}: delete line {lines}.")


def _script_in(folder: Path) -> Path:
    scripts = sorted(folder.glob("*.py"))
    named = [each for name in _USUAL_NAMES for each in scripts if each.name == name]
    packages = [*folder.glob("__main__.py"), *sorted(folder.glob("*/__main__.py"))]
    if not named and len(packages) == 1:
        return packages[0]
    if not named and len(scripts) != 1:
        found = f"has {len(scripts)} scripts" if scripts else "has no Python script"
        fail(f"{folder} {found}; name the one that trains: tiercel init {folder}/train.py", USAGE)
    return [*named, *scripts][0]


def _folder_of(script: Path) -> Path:
    """The folder that is sent: of a package that is run as one, the folder that it is in."""
    return script.resolve().parents[1] if _is_of_package(script) else script.parent


def _is_of_package(script: Path) -> bool:
    return script.name == "__main__.py" and script.with_name("__init__.py").is_file()


def _read_project(script: Path, folder: Path) -> ScriptFacts:
    """What a script says, and with it the modules beside it that it imports, or all of its package."""
    facts = _read(script)
    if _is_of_package(script):
        modules = [each for each in sorted(script.parent.rglob("*.py")) if each != script]
    else:
        modules = [each for name in facts.imports if (each := folder / f"{name}.py").is_file()]
    return facts.with_modules([_read(each) for each in modules[:_MOST_MODULES]])


def _read(script: Path) -> ScriptFacts:
    from tiercel.broker.cli.script_reading import read_script

    try:
        with script.open(encoding="utf-8") as file:
            text = file.read(_MOST_BYTES)
        return read_script(text)
    except OSError as error:
        fail(f"{script} cannot be read ({error.strerror}); give the path of a training script.")
    except SyntaxError as error:
        fail(f"{script} is not Python: line {error.lineno}, {error.msg}.")
    except (ValueError, RecursionError) as error:
        fail(f"{script} is not Python that can be read ({error}).")


def _needed(folder: Path, facts: ScriptFacts) -> list[str]:
    """Packages that a node may not have, by the names under which they are installed as far as that is known here."""
    from importlib.metadata import packages_distributions

    known = packages_distributions()
    local = {each.stem for each in folder.iterdir() if each.suffix == ".py" or each.is_dir()}
    return [known.get(name, [name])[0] for name in facts.imports if name not in _THERE | local]


def _text(script: Path, folder: Path, facts: ScriptFacts, metric: str) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")[:63] or "model"
    direction = usual_direction(metric) if metric else Direction.MAX
    others = ", ".join(each for each in (*facts.reported, *facts.printed) if each != metric)
    tiers = "[0.90, 0.97]" if direction is not Direction.MIN else "[0.5, 0.2]"
    lines = [
        f"# Written by 'tiercel init' from {script.name}, which was read and not run. To send it: tiercel submit .",
        f"endpoint: {name}   # the name that applications call",
        f"command: {_command(script, facts)}   # runs in this folder, of which each run has a fresh copy",
        *_argument_lines(facts),
    ]
    found = "as the script reports it" if facts.reported else "as the script prints it; it has to report() it"
    lines.append(f"metric: {metric or 'accuracy'}   # {found if metric else 'none was found: name what it reports'}")
    if others:
        lines.append(f"# or one of these: {others}")
    if direction is None:
        lines.append("direction: max   # its name does not tell: max if more is better, else min")
    lines.append(f"tiers: {tiers}   # ship at the first, go on to the last: put in what is good enough, and the goal")
    lines += _requirement_lines(folder, facts)
    lines.append("# max_epochs: 100                         # docs/spec.md has all fields")
    return "\n".join(re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", " ", line) for line in lines) + "\n"


def _command(script: Path, facts: ScriptFacts) -> str:
    import json
    import shlex

    program = ["-m", script.resolve().parent.name] if _is_of_package(script) else [script.name]
    subcommand, _ = _training(facts)
    words = shlex.join(["python", *program, *filter(None, [subcommand])])
    return words if re.fullmatch(r"[\w ./-]+", words, re.ASCII) else json.dumps(words)


def _training(facts: ScriptFacts) -> tuple[str, str]:
    """The subcommand that trains, as far as its name tells, else the first, and the variable of its parser."""
    named = (each for each in facts.subcommands if each[0].startswith(("train", "fit")))
    return next(named, next(iter(facts.subcommands), ("", "")))


def _argument_lines(facts: ScriptFacts) -> list[str]:
    chosen, variable = _training(facts)
    others = [(name, parser) for name, parser in facts.subcommands if name != chosen]
    lines = [f"# or one of its other subcommands: {', '.join(name for name, _ in others)}"] if others else []
    elsewhere = {parser for _, parser in others} - {variable}
    arguments = [each for each in facts.arguments if each.parser not in elsewhere]
    if arguments:
        lines.append("# its arguments, to be put behind the command:")
    return lines + [
        f"#   {each.flag} {each.default}".rstrip() + (f"   {each.help}" if each.help else "") for each in arguments
    ]


def _requirement_lines(folder: Path, facts: ScriptFacts) -> list[str]:
    if (folder / "requirements.txt").is_file():
        return ["requirements: requirements.txt   # built once for each node"]
    if needed := _needed(folder, facts):
        return [f"requirements: [{', '.join(needed)}]   # from its imports; write versions: name==1.2"]
    return []


def _told(spec: Path, facts: ScriptFacts, metric: str) -> dict[str, Any]:
    return {
        "spec": str(spec),
        "framework": facts.framework,
        "connects": facts.connects,
        "metric": metric,
        "arguments": [each.flag for each in facts.arguments],
        "imports": list(facts.imports),
    }
