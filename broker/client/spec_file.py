"""Job specs from YAML, TOML, or a mapping such as the command line's flags."""

from __future__ import annotations

import dataclasses
import difflib
import reprlib
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import yaml
from pydantic import BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, ValidationError, create_model

from tiercel.broker.client.spec_requirements import read_requirements
from tiercel.broker.client.spec_values import (
    Below,
    Replicas,
    Seconds,
    environment_of,
    with_retries_as_mapping,
    with_retries_spread,
)
from tiercel.broker.client.spec_yaml import read_yaml
from tiercel.core.data_sets import DataSet
from tiercel.core.errors import InvalidSpecError, wrong_field
from tiercel.core.jobs import Direction, JobSpec, Resources, Script, Tier
from tiercel.core.metric_names import usual_direction
from tiercel.core.projects import Project
from tiercel.core.retraining import DAY_SECONDS, Retrain
from tiercel.core.shipping import Shipping
from tiercel.core.validation import MAX_SCRIPT_BYTES

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

SPEC_FILES = ("tiercel.yaml", "tiercel.yml", "tiercel.toml")
_MAX_SPEC_BYTES = 1024 * 1024
_PROGRAMS = ("script", "module", "command")
_MESSAGES = {
    "missing": "is missing; give one",
    "too_short": "is empty; give one at least",
}
# By how pydantic's names for what is wrong begin.
_WANTED = {
    "int_": "a whole number",
    "float_": "a number",
    "bool_": "true or false",
    "string_": "text; put it in quotes",
    "byte_size": "a size; write one such as 512MiB or 4GiB",
    **dict.fromkeys(("list_", "tuple_"), "a list; write it in brackets, with commas: [first, second]"),
    **dict.fromkeys(("dict_", "model_", "dataclass_"), "fields with values; write {name: value}"),
}
_SHELL = frozenset({"&&", "||", ";", "|", "&", ">", ">>", "<", "2>&1"})


class _Strict(BaseModel):
    # A misspelt field must not pass for one that was left out.
    model_config = ConfigDict(extra="forbid")


def _form(kind: type, **changed: Any) -> type[_Strict]:
    """What people write of a type: its fields, but for those that they write otherwise (``changed``)."""
    hints = get_type_hints(kind)
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        fields[field.name] = (hints[field.name], ... if default is dataclasses.MISSING else default)
    return create_model(kind.__name__, __base__=_Strict, **{**fields, **changed})


def _written(name: str, kind: Any, default: Any, description: str | None = None) -> Any:
    """A field that people write under another name."""
    return (kind, Field(default=default, alias=name, description=description))


def _told(kind: Any, default: Any, description: str) -> Any:
    """A field under which people write something else than what becomes of it."""
    return (kind, Field(default=default, description=description))


def _tier(value: object) -> object:
    return {"target": value} if isinstance(value, int | float | str) else value


def _data_set(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


_DEFAULTS = Resources()
_TierForm = _form(Tier)
_ResourcesForm = _form(
    Resources,
    memory_bytes=_written("memory", ByteSize, _DEFAULTS.memory_bytes),
    accelerator_memory_bytes=_written("accelerator_memory", ByteSize, _DEFAULTS.accelerator_memory_bytes),
    scratch_bytes=_written("scratch", ByteSize, _DEFAULTS.scratch_bytes),
)
_ShippingForm = _form(Shipping, best_every_seconds=_written("best_every", float | None, None))
_DataSetForm = _form(DataSet)
_RetrainForm = _form(
    Retrain,
    budget_core_hours=(float, Field(alias="budget")),
    below=(Below, None),
    window_seconds=_written("window", Seconds, DAY_SECONDS),
    on=_told(list[str], [], "What starts one: `accuracy`, `inputs` or both. Empty: `accuracy`."),
)
_SpecForm = _form(
    JobSpec,
    name=_told(str, "", "A label for people. Left out: the endpoint's name."),
    script=_told(
        str, "", "The program as a Python file. Its path is relative to this file, or to the project's folder."
    ),
    project=_told(str, "", "The folder that it runs from. Its path is relative to this file."),
    command=_told(
        str | list[str], [], "A command line as the program. It starts in the project's folder. No shell reads it."
    ),
    direction=_told(Direction | None, None, "Which metric is better. Left out: as usual for a metric of that name."),
    # A form is made, which a type checker cannot know for a type.
    tiers=(Annotated[list[Annotated[_TierForm, BeforeValidator(_tier)]], Field(min_length=1)], ...),  # type: ignore[valid-type]
    arguments=(list[str], []),
    data=(list[Annotated[_DataSetForm, BeforeValidator(_data_set)]], []),  # type: ignore[valid-type]
    resources=(_ResourcesForm, _ResourcesForm()),
    ship=(_ShippingForm, _ShippingForm()),
    retrain=(_RetrainForm | None, None),
    requirements=_told(str | list[str], "", "Packages that it needs: a file (requirements.txt and others), or a list."),
    secrets=(list[str], []),
    env=_told(
        Annotated[dict[str, str], BeforeValidator(environment_of)],
        {},
        "Variables in the environment of its program: with values, or only names to take the values from yours.",
    ),
    max_duration_seconds=_written("max_duration", Seconds | None, None),
    every_seconds=_written("every", Seconds | None, None),
    replicas=_told(
        Replicas,
        1,
        "On how many nodes the version of its endpoint answers, if there are as many. The endpoint keeps this number. "
        "`auto`: as many as its load needs.",
    ),
    copy_checkpoint_seconds=_written("copy_checkpoint_every", Seconds | None, None),
    retry_back_off_seconds=_written("retries.back_off", Seconds | None, None),
    retry_exit_codes=_written("retries.exit_codes", tuple[int, ...], ()),
)

FORMS: Mapping[str, tuple[type, type[BaseModel]]] = {
    "": (JobSpec, _SpecForm),
    "tiers": (Tier, _TierForm),
    "resources": (Resources, _ResourcesForm),
    "ship": (Shipping, _ShippingForm),
    "data": (DataSet, _DataSetForm),
    "retrain": (Retrain, _RetrainForm),
}
"""What people write: by the field under which it stands, what becomes of it and which fields it may have."""


def as_written(field: str) -> str:
    """The name that a file has for a field of :class:`~tiercel.JobSpec`: ``resources.memory``."""
    head, _, name = field.rpartition(".")
    place = head.partition("[")[0]
    known = FORMS[place][1].model_fields.get(name) if place in FORMS else None
    if known is None or known.alias is None:
        return field
    return f"{head}.{known.alias}" if head else known.alias


def load_spec(path: str | Path, changes: Mapping[str, Any] | None = None) -> JobSpec:
    """A job's spec from a file.

    Args:
        path: YAML, or TOML if its name ends in ``.toml``; or a folder that has a ``tiercel.yaml`` and is the job's
            project. A script in it is relative to its folder, or to the project's.
        changes: Fields that replace those of the file, e.g. the command line's flags; a script in them is relative to
            the working directory.

    Raises:
        InvalidSpecError: The file or a field of it is wrong; names it.
    """
    file = Path(path)
    values: dict[str, Any] = {}
    if file.is_dir():
        folder, found = file, next((file / name for name in SPEC_FILES if (file / name).exists()), None)
        if found is None and not changes:
            message = f"{file} has no {SPEC_FILES[0]} that says what to train; write one, or give the fields as flags."
            raise InvalidSpecError(message, field="file")
        values = {"project": "."} | (_read(found) if found is not None else {})
    else:
        folder, values = file.parent, _read(file)
    for name in ("project", "requirements", *(() if values.get("project") else ("script",))):
        if isinstance(given := values.get(name), str) and given:
            values[name] = str(folder / given)
    return parse_spec(_merged(values, changes or {}))


def parse_spec(values: Mapping[str, Any]) -> JobSpec:
    """A job's spec from a mapping of the form that the file has.

    Raises:
        InvalidSpecError: A field is wrong; names it.
    """
    try:
        form = _SpecForm.model_validate(with_retries_spread(values))
    except ValidationError as error:
        raise _invalid(error) from None
    written = dict(form)
    if written["project"]:
        written = _with_command(written)
    return JobSpec(
        **{
            **written,
            "name": written["name"] or written["endpoint"],
            "direction": written["direction"] or _usual_direction(written["metric"]),
            "tiers": tuple(Tier(**dict(tier)) for tier in written["tiers"]),
            "arguments": tuple(written["arguments"]),
            "script": _read_script(Path(written["script"])) if written["script"] else None,
            "project": Project(folder=str(Path(written["project"]).absolute())) if written["project"] else None,
            "command": _words(written["command"]),
            "resources": Resources(**dict(written["resources"])),
            "requirements": _requirements(written["requirements"]),
            "secrets": tuple(written["secrets"]),
            "data": tuple(DataSet(**dict(each)) for each in written["data"]),
            "ship": Shipping(**dict(written["ship"])),
            "retrain": _retrain(dict(written["retrain"])) if written["retrain"] is not None else None,
        }
    )


def _retrain(written: dict[str, Any]) -> Retrain:
    return Retrain(**{**written, "on": tuple(written["on"])})


def _with_command(written: dict[str, Any]) -> dict[str, Any]:
    """A script of a project is a file of it, which Python runs."""
    if not written["script"]:
        return written
    if written["command"]:
        raise wrong_field("script", "is given beside a command; give one of the two")
    return {**written, "script": "", "command": ["python", written["script"]]}


def _words(command: str | list[str]) -> tuple[str, ...]:
    """The words of a command line, as a shell would split them."""
    if not isinstance(command, str):
        return tuple(command)
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise wrong_field("command", f"cannot be split into words ({error})") from None
    if of_a_shell := next((word for word in words if word in _SHELL), ""):
        message = f"command: no shell reads it, so that {of_a_shell!r} has no meaning; write: bash -c '...'"
        raise InvalidSpecError(message, field="command")
    return words


def _requirements(written: str | list[str]) -> tuple[str, ...]:
    return tuple(written) if isinstance(written, list) else read_requirements(Path(written)) if written else ()


def _usual_direction(metric: str) -> Direction:
    direction = usual_direction(metric)
    if direction is None:
        message = (
            f"direction: is missing, and the name {metric!r} does not tell it; give 'max' if more is better, "
            "or 'min' if less is"
        )
        raise InvalidSpecError(message, field="direction")
    return direction


def _read(path: Path) -> dict[str, Any]:
    if path.suffix == ".py":
        message = f"{path} is a Python script; 'tiercel init {path}' writes a spec for it, or give --script {path}."
        raise InvalidSpecError(message, field="file")
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_SPEC_BYTES + 1)
        if len(content) > _MAX_SPEC_BYTES:
            raise InvalidSpecError(f"{path} has more than {_MAX_SPEC_BYTES} bytes; no spec has.", field="file")
        text = content.decode()
        values = tomllib.loads(text) if path.suffix == ".toml" else read_yaml(text)
    except OSError as error:
        message = f"{path} cannot be read ({error.strerror}); give a project's folder, or a YAML or TOML file."
        raise InvalidSpecError(message, field="file") from None
    except (tomllib.TOMLDecodeError, yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        kind = "TOML" if path.suffix == ".toml" else "YAML"
        raise InvalidSpecError(f"{path} is not {kind}: {_in_one_line(error)}", field="file") from None
    if not isinstance(values, dict):
        raise InvalidSpecError(f"{path} holds no fields; see 'tiercel submit --help'.", field="file")
    return values


def _in_one_line(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return " ".join(str(error).split())


def _merged(values: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged, changes = dict(with_retries_as_mapping(values)), with_retries_as_mapping(changes)
    # One program takes the other's place.
    for given in _PROGRAMS:
        if given in changes:
            for replaced in _PROGRAMS:
                merged.pop(replaced, None)
    for name, value in changes.items():
        before = merged.get(name)
        merged[name] = {**before, **value} if isinstance(before, dict) and isinstance(value, Mapping) else value
    return merged


def _read_script(path: Path) -> Script:
    try:
        content = path.read_bytes()
    except OSError as error:
        message = f"script: {path} cannot be read ({error.strerror}); give the path of a Python file."
        raise InvalidSpecError(message, field="script") from None
    if len(content) > MAX_SCRIPT_BYTES:
        message = (
            f"script: {path} has {len(content)} bytes, more than 1 MiB; submit a folder, or use an image or module."
        )
        raise InvalidSpecError(message, field="script")
    return Script(path.name, content)


def _invalid(error: ValidationError) -> InvalidSpecError:
    # One sentence about the first field that is wrong: the next ones often follow from it, and what is missing
    # from a field that is written otherwise.
    found = error.errors(include_url=False)
    first = next((each for each in found if each["type"] == "extra_forbidden"), found[0])
    field = _field(first["loc"])
    return InvalidSpecError(f"{field}: {_said(first)}", field=field)


def _said(error: ErrorDetails) -> str:
    """What is wrong with a field, with what was written there, in words of the file and not of Python."""
    kind, written = error["type"], reprlib.repr(error["input"])
    if kind == "extra_forbidden":
        return f"is no field of a job's spec{_suggestion(error['loc'])}"
    if kind in _MESSAGES:
        return _MESSAGES[kind]
    if kind in {"enum", "literal_error"}:
        return f"{written} is not {error['ctx']['expected']}"
    wanted = next((words for beginning, words in _WANTED.items() if kind.startswith(beginning)), "")
    return f"{written} is not {wanted}" if wanted else error["msg"]


def _suggestion(location: tuple[int | str, ...]) -> str:
    """What somebody may have meant who wrote a field that there is not."""
    _, form = FORMS.get(str(location[0]) if len(location) > 1 else "", FORMS[""])
    known = [field.alias or name for name, field in form.model_fields.items()]
    near = difflib.get_close_matches(str(location[-1]), known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"


def _field(location: tuple[int | str, ...]) -> str:
    parts = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return parts.removeprefix(".")
