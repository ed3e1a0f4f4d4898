"""What a job's spec must look like before anything is created."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from tiercel.core.data_validation import validate_data
from tiercel.core.errors import wrong_field
from tiercel.core.figures import size
from tiercel.core.jobs import AUTO_REPLICAS, Direction
from tiercel.core.path_patterns import validate_outputs
from tiercel.core.projects import validate_project
from tiercel.core.ranks import validate_ranks
from tiercel.core.requirements import validate_requirements
from tiercel.core.secrets import validate_secrets
from tiercel.core.validation_over_time import validate_over_time
from tiercel.core.variables import validate_env
from tiercel.core.variants_validation import validate_variants

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tiercel.core.jobs import JobSpec, Resources, Script
    from tiercel.core.shipping import Shipping
    from tiercel.core.tiers import Tier

MAX_TIERS = 32
MAX_SCRIPT_BYTES = 1024 * 1024
MIN_MEMORY_BYTES = 64 * 1024**2
# What a database's integers hold.
MAX_MEMORY_BYTES = 2**62
MIN_SCRATCH_BYTES = 1024**2
MAX_ACCELERATORS = 64
MAX_OBJECTIVE_SECONDS = 3600.0
MIN_BEST_EVERY_SECONDS = 1.0
MAX_EPOCHS = 2**31
MAX_LABELS = 32
MAX_REPLICAS = 8
MAX_ARGUMENTS = 256
MAX_ARGUMENTS_CHARACTERS = 64 * 1024
RUNTIMES = ("process", "docker")

_ENDPOINT = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_VARIANT = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_METRIC = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,62}")
_SCRIPT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,100}\.py")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")


def validate_spec(spec: JobSpec) -> None:
    """Check everything about a spec that can be known without looking at nodes or other jobs.

    Raises:
        InvalidSpecError: A field is missing, malformed or impossible; ``field`` names it, the message what to do.
    """
    _validate_names(spec)
    _validate_program(spec)
    _validate_tiers(spec)
    _validate_variant(spec)
    validate_variants(spec, is_accuracy=_is_accuracy(spec))
    _validate_limits(spec)
    validate_ranks(spec)
    _validate_replicas(spec)
    _validate_shipping(spec.ship)
    validate_requirements(spec)
    validate_labels(spec.labels, "labels")
    validate_labels(spec.node_labels, "node_labels")
    validate_env(spec.env)
    validate_secrets(spec.secrets, spec.env)
    validate_over_time(spec)
    validate_data(spec.data)
    validate_outputs(spec.outputs)


def _validate_shipping(ship: Shipping) -> None:
    for field, number in (("ship.every", ship.every), ("ship.best_every", ship.best_every_seconds)):
        if number is None:
            continue
        if not (math.isfinite(number) and number > 0):
            raise wrong_field(
                field, f"{number} is not a number above 0; leave it out to deliver the best at the end only"
            )
        if ship.only_tiers:
            raise wrong_field(field, "is given beside only_tiers, which delivers nothing else; give one of the two")
    if ship.best_every_seconds is not None and ship.best_every_seconds < MIN_BEST_EVERY_SECONDS:
        raise wrong_field(
            "ship.best_every", f"is below {MIN_BEST_EVERY_SECONDS:g} s, and each delivery costs CPU; give more"
        )


def validate_labels(labels: Mapping[str, str], field: str) -> None:
    """Check labels of a job or a node.

    Raises:
        InvalidSpecError: There are too many, or one is malformed; names it below ``field``.
    """
    if len(labels) > MAX_LABELS:
        raise wrong_field(field, f"has {len(labels)} entries; at most {MAX_LABELS} are taken")
    for name, value in labels.items():
        if not _LABEL.fullmatch(name):
            raise wrong_field(
                field,
                f"{name!r} is not a label's name; use 1 to 63 of letters, digits, '.', '_', '/' and '-', "
                "beginning with a letter or digit",
            )
        if len(value) > 128 or not value.isprintable():
            raise wrong_field(f"{field}.{name}", "is longer than 128 characters, or has some that cannot be printed")


def _validate_names(spec: JobSpec) -> None:
    validate_endpoint_name(spec.endpoint)
    validate_metric(spec.metric)
    if len(spec.name) > 128:
        raise wrong_field("name", "is longer than 128 characters; shorten it")
    if not spec.name.isprintable():
        raise wrong_field("name", f"{spec.name!r} has characters that cannot be printed; leave them out")


def validate_endpoint_name(name: str) -> None:
    """Check the name of an endpoint.

    Raises:
        InvalidSpecError: It is none.
    """
    if not _ENDPOINT.fullmatch(name):
        raise wrong_field(
            "endpoint",
            f"{name[:80]!r} is not an endpoint's name; use 1 to 63 of a-z, 0-9, '.', '_' and '-', "
            "beginning with a letter or digit",
        )


def validate_metric(name: str) -> None:
    """Check the name of a metric.

    Raises:
        InvalidSpecError: It is none.
    """
    if not _METRIC.fullmatch(name):
        raise wrong_field(
            "metric", f"{name!r} is not a metric's name; give the name that the script reports, such as 'accuracy'"
        )


def _validate_program(spec: JobSpec) -> None:
    given = [name for name in ("script", "module", "command") if getattr(spec, name)]
    if len(given) > 1:
        raise wrong_field(given[1], f"is given beside a {given[0]}; give one of the two")
    if not given and not spec.image:
        raise wrong_field("script", "is missing; give a training script, a module to run, or an image with a command")
    _validate_project(spec)
    if spec.script is not None:
        _validate_script(spec.script)
    if spec.module and not (_MODULE.fullmatch(spec.module) and len(spec.module) <= 255):
        raise wrong_field("module", f"{spec.module!r} is not a Python module's name, such as 'package.train'")
    if spec.runtime and spec.runtime not in RUNTIMES:
        raise wrong_field(
            "runtime", f"{spec.runtime!r} is unknown; choose one of {', '.join(RUNTIMES)} or leave it out"
        )
    if spec.image and spec.runtime == "process":
        raise wrong_field("image", "needs the runtime 'docker'; leave out the image or change the runtime")
    if spec.image and not _IMAGE.fullmatch(spec.image):
        raise wrong_field("image", f"{spec.image!r} is not a container image's name, such as 'python:3.12-slim'")
    _validate_arguments("command", spec.command)
    _validate_arguments("arguments", spec.arguments)


def _validate_project(spec: JobSpec) -> None:
    if spec.project is not None:
        validate_project(spec.project)
        if spec.script is not None:
            raise wrong_field("script", "is given beside a project; name a file of the project by 'command'")
    elif spec.command and not spec.image:
        raise wrong_field("command", "needs a project or an image to be found in; give one, such as 'project: .'")


def _validate_script(script: Script) -> None:
    if not _SCRIPT_NAME.fullmatch(script.name):
        raise wrong_field("script.name", f"{script.name!r} is not the name of a Python file, such as 'train.py'")
    if not script.content:
        raise wrong_field("script.content", "is empty; send the script's text")
    if len(script.content) > MAX_SCRIPT_BYTES:
        raise wrong_field("script.content", f"has {len(script.content)} bytes; at most {MAX_SCRIPT_BYTES} are taken")
    try:
        script.content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise wrong_field("script.content", f"is not text in UTF-8 ({error.reason} at byte {error.start})") from error


def _validate_arguments(field: str, arguments: tuple[str, ...]) -> None:
    if len(arguments) > MAX_ARGUMENTS:
        raise wrong_field(field, f"has {len(arguments)} entries; at most {MAX_ARGUMENTS} are taken")
    if sum(len(argument) for argument in arguments) > MAX_ARGUMENTS_CHARACTERS:
        raise wrong_field(field, f"are longer than {MAX_ARGUMENTS_CHARACTERS} characters together; use a file")
    for index, argument in enumerate(arguments):
        if "\0" in argument:
            raise wrong_field(f"{field}[{index}]", "contains a NUL character, which no command line can carry")


def _validate_hard(spec: JobSpec, tier: Tier, where: str) -> None:
    if not tier.hard:
        return
    if tier.deadline_seconds is None:
        raise wrong_field(where, "is given without deadline_seconds; say by when the tier is wanted")
    beside = "queue" if spec.queue else "every" if spec.every_seconds is not None else ""
    if beside:
        raise wrong_field(where, f"is given beside {beside!r}, by which the job begins at a time that nobody knows yet")


def _validate_tiers(spec: JobSpec) -> None:
    if not spec.tiers:
        raise wrong_field("tiers", "is empty; give at least one target of the metric")
    if len(spec.tiers) > MAX_TIERS:
        raise wrong_field("tiers", f"has {len(spec.tiers)} entries; at most {MAX_TIERS} are taken")
    for index, tier in enumerate(spec.tiers):
        where = f"tiers[{index}]"
        if not math.isfinite(tier.target):
            raise wrong_field(f"{where}.target", f"{tier.target} is not a finite number")
        if not (math.isfinite(tier.value) and tier.value > 0):
            raise wrong_field(f"{where}.value", f"{tier.value} is not a positive number")
        if tier.deadline_seconds is not None and not (
            math.isfinite(tier.deadline_seconds) and tier.deadline_seconds > 0
        ):
            raise wrong_field(
                f"{where}.deadline_seconds", f"{tier.deadline_seconds} is not a positive number of seconds"
            )
        _validate_hard(spec, tier, f"{where}.hard")
    rising = spec.direction is Direction.MAX
    for index in range(1, len(spec.tiers)):
        before, after = spec.tiers[index - 1].target, spec.tiers[index].target
        if after <= before if rising else after >= before:
            raise wrong_field(
                f"tiers[{index}].target",
                f"{after} does not come after {before}; list tiers from the easiest to the hardest: for direction "
                f"'{spec.direction.value}' that means {'rising' if rising else 'falling'} targets",
            )


def _is_accuracy(spec: JobSpec) -> bool:
    return spec.direction is Direction.MAX and all(0 < tier.target <= 1 for tier in spec.tiers)


def _validate_variant(spec: JobSpec) -> None:
    """A variant is chosen by its accuracy, so that the job's metric must be one."""
    if not spec.variant:
        return
    if not _VARIANT.fullmatch(spec.variant):
        raise wrong_field(
            "variant",
            f"{spec.variant!r} is not a variant's name; use 1 to 32 of a-z, 0-9, '_' and '-', beginning with a letter "
            "or digit",
        )
    if not _is_accuracy(spec):
        raise wrong_field(
            "variant",
            f"{spec.variant!r} would be chosen by its accuracy, which {spec.metric!r} is not; use a metric that is a "
            "fraction and to grow, with tiers from 0 to 1, or leave out the variant",
        )


def _validate_replicas(spec: JobSpec) -> None:
    validate_replicas(spec.replicas)
    if spec.variant and spec.replicas != 1:
        raise wrong_field(
            "replicas",
            "is given beside a variant, and all variants of an endpoint answer on one node; leave out one of the two",
        )


def validate_replicas(count: int) -> None:
    """Check on how many nodes an endpoint shall answer.

    Raises:
        InvalidSpecError: It cannot be on as many.
    """
    if count != AUTO_REPLICAS and not 1 <= count <= MAX_REPLICAS:
        raise wrong_field("replicas", f"{count} is not a number of nodes from 1 to {MAX_REPLICAS}, nor auto")


def validate_objective(field: str, seconds: float) -> None:
    """Check the delay that is wanted of an endpoint.

    Raises:
        InvalidSpecError: It is none; names the field.
    """
    if not 0 < seconds <= MAX_OBJECTIVE_SECONDS:
        raise wrong_field(
            field,
            f"{seconds} is not a delay that an endpoint can aim at; give seconds above 0 and up to "
            f"{MAX_OBJECTIVE_SECONDS:g}, such as 0.05, or leave it out",
        )


def _validate_limits(spec: JobSpec) -> None:
    cores, memory = spec.resources.cpu_cores, spec.resources.memory_bytes
    if not (math.isfinite(cores) and cores > 0):
        raise wrong_field("resources.cpu_cores", f"{cores} is not a positive number of cores")
    if memory < MIN_MEMORY_BYTES:
        raise wrong_field(
            "resources.memory_bytes",
            f"{size(memory)} is too little; give {size(MIN_MEMORY_BYTES)} or more",
        )
    if memory > MAX_MEMORY_BYTES:
        raise wrong_field("resources.memory_bytes", f"{memory} bytes are more than any machine has")
    _validate_accelerators(spec.resources)
    if not (spec.resources.scratch_bytes == 0 or MIN_SCRATCH_BYTES <= spec.resources.scratch_bytes <= MAX_MEMORY_BYTES):
        raise wrong_field(
            "resources.scratch_bytes",
            f"{spec.resources.scratch_bytes} bytes are no room to work in; give {MIN_SCRATCH_BYTES} or more, "
            "or leave it out",
        )
    validate_max_epochs(spec.max_epochs)
    if not (math.isfinite(spec.report_timeout_seconds) and spec.report_timeout_seconds > 0):
        raise wrong_field(
            "report_timeout_seconds", f"{spec.report_timeout_seconds} is not a positive number of seconds"
        )
    if spec.endpoint_objective_seconds is not None:
        validate_objective("endpoint_objective_seconds", spec.endpoint_objective_seconds)


def validate_max_epochs(max_epochs: int) -> None:
    """Check for how long a job may train.

    Raises:
        InvalidSpecError: It is not a number of epochs.
    """
    if not 1 <= max_epochs <= MAX_EPOCHS:
        raise wrong_field("max_epochs", f"{max_epochs} is not a number of epochs from 1 to {MAX_EPOCHS}")


def _validate_accelerators(resources: Resources) -> None:
    count, memory = resources.accelerators, resources.accelerator_memory_bytes
    if not 0 <= count <= MAX_ACCELERATORS:
        raise wrong_field("resources.accelerators", f"{count} is not a number of devices from 0 to {MAX_ACCELERATORS}")
    if not 0 <= memory <= MAX_MEMORY_BYTES:
        raise wrong_field("resources.accelerator_memory_bytes", f"{memory} bytes are not what a device can have")
    if memory and not count:
        raise wrong_field(
            "resources.accelerator_memory_bytes",
            "says what the job needs on each accelerator, but it asks for none; add resources.accelerators",
        )
