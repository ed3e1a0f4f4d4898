"""Job specs from YAML, TOML, or a mapping such as the command line's flags."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, ValidationError

from tiercel.core.errors import InvalidSpecError
from tiercel.core.jobs import Direction, JobSpec, Resources, Script, Shipping, Tier
from tiercel.core.metric_names import usual_direction

MAX_SCRIPT_BYTES = 1024 * 1024
_DEFAULTS = JobSpec(name="", endpoint="", metric="", direction=Direction.MAX, tiers=())


class _Strict(BaseModel):
    # A misspelt field must not pass for one that was left out.
    model_config = ConfigDict(extra="forbid")


class _Tier(_Strict):
    target: float
    value: float = 1.0
    deadline_seconds: float | None = None


def _tier(value: object) -> object:
    return {"target": value} if isinstance(value, int | float | str) else value


class _Resources(_Strict):
    cpu_cores: float = _DEFAULTS.resources.cpu_cores
    memory: ByteSize = ByteSize(_DEFAULTS.resources.memory_bytes)
    accelerators: int = 0
    accelerator_memory: ByteSize = ByteSize(0)

    def to_domain(self) -> Resources:
        return Resources(self.cpu_cores, int(self.memory), self.accelerators, int(self.accelerator_memory))


class _Shipping(_Strict):
    only_tiers: bool = False
    every: float | None = None
    best_every: float | None = None

    def to_domain(self) -> Shipping:
        return Shipping(self.only_tiers, self.every, self.best_every)


class _Spec(_Strict):
    name: str = ""
    endpoint: str
    variant: str = ""
    script: str = ""
    module: str = ""
    image: str = ""
    arguments: list[str] = []
    metric: str
    direction: Direction | None = None
    tiers: list[Annotated[_Tier, BeforeValidator(_tier)]] = Field(min_length=1)
    resources: _Resources = _Resources()
    runtime: str = ""
    max_epochs: int = _DEFAULTS.max_epochs
    report_timeout_seconds: float = _DEFAULTS.report_timeout_seconds
    continue_after_last_tier: bool = False
    replace: bool = False
    ship: _Shipping = _Shipping()
    endpoint_objective_seconds: float | None = None
    retries: int = 0


def load_spec(path: str | Path, changes: Mapping[str, Any] | None = None) -> JobSpec:
    """A job's spec from a file.

    Args:
        path: YAML, or TOML if its name ends in ``.toml``. A script in it is relative to its folder.
        changes: Fields that replace those of the file, e.g. the command line's flags; a script in them is relative to
            the working directory.

    Raises:
        InvalidSpecError: The file or a field of it is wrong; names it.
    """
    file = Path(path)
    values = _read(file)
    if script := values.get("script"):
        values["script"] = str(file.parent / str(script))
    return parse_spec(_merged(values, changes or {}))


def parse_spec(values: Mapping[str, Any]) -> JobSpec:
    """A job's spec from a mapping of the form that the file has.

    Raises:
        InvalidSpecError: A field is wrong; names it.
    """
    try:
        spec = _Spec.model_validate(values)
    except ValidationError as error:
        raise _invalid(error) from None
    script = _read_script(Path(spec.script)) if spec.script else None
    return JobSpec(
        name=spec.name or spec.endpoint,
        endpoint=spec.endpoint,
        variant=spec.variant,
        metric=spec.metric,
        direction=_direction(spec),
        tiers=tuple(Tier(tier.target, tier.value, tier.deadline_seconds) for tier in spec.tiers),
        script=script,
        module=spec.module,
        image=spec.image,
        arguments=tuple(spec.arguments),
        resources=spec.resources.to_domain(),
        runtime=spec.runtime,
        max_epochs=spec.max_epochs,
        report_timeout_seconds=spec.report_timeout_seconds,
        continue_after_last_tier=spec.continue_after_last_tier,
        replace=spec.replace,
        ship=spec.ship.to_domain(),
        endpoint_objective_seconds=spec.endpoint_objective_seconds,
        retries=spec.retries,
    )


def _direction(spec: _Spec) -> Direction:
    direction = spec.direction or usual_direction(spec.metric)
    if direction is None:
        message = (
            f"direction: is missing, and the name {spec.metric!r} does not tell it; give 'max' if more is better, "
            "or 'min' if less is"
        )
        raise InvalidSpecError(message, field="direction")
    return direction


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        values = tomllib.loads(text) if path.suffix == ".toml" else yaml.safe_load(text)
    except OSError as error:
        message = f"{path} cannot be read ({error.strerror}); give the path of a YAML or TOML file."
        raise InvalidSpecError(message, field="file") from None
    except (tomllib.TOMLDecodeError, yaml.YAMLError, UnicodeDecodeError) as error:
        kind = "TOML" if path.suffix == ".toml" else "YAML"
        raise InvalidSpecError(f"{path} is not {kind}: {error}", field="file") from None
    if not isinstance(values, dict):
        raise InvalidSpecError(f"{path} holds no fields; see 'tiercel submit --help'.", field="file")
    return values


def _merged(values: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(values)
    # One program takes the other's place.
    for given, replaced in (("script", "module"), ("module", "script")):
        if given in changes:
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
            f"script: {path} has {len(content)} bytes, more than 1 MiB; put what is large into an image or module."
        )
        raise InvalidSpecError(message, field="script")
    return Script(path.name, content)


def _invalid(error: ValidationError) -> InvalidSpecError:
    # One sentence about the first field that is wrong: the next ones often follow from it.
    first = error.errors(include_url=False)[0]
    field = _field(first["loc"])
    messages = {"missing": "is missing", "extra_forbidden": f"is no field of a job's spec{_suggestion(first['loc'])}"}
    return InvalidSpecError(f"{field}: {messages.get(first['type'], first['msg'])}", field=field)


def _suggestion(location: tuple[int | str, ...]) -> str:
    """What somebody may have meant who wrote a field that there is not."""
    part = str(location[0]) if len(location) > 1 else ""
    known: type[BaseModel] = _Tier if part == "tiers" else _Resources if part == "resources" else _Spec
    near = difflib.get_close_matches(str(location[-1]), known.model_fields, n=1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known.model_fields)}"


def _field(location: tuple[int | str, ...]) -> str:
    parts = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return parts.removeprefix(".")
