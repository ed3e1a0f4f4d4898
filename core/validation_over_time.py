"""What the fields of a job's spec that are about its runs over time must look like."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from tiercel.core.durations import in_words
from tiercel.core.errors import wrong_field
from tiercel.core.jobs import Direction
from tiercel.core.retraining import ACCURACY, INPUTS
from tiercel.core.tenants import is_tenant_name

if TYPE_CHECKING:
    from tiercel.core.jobs import JobSpec

MAX_RETRIES = 100
MIN_EVERY_SECONDS = 60.0
MAX_EVERY_SECONDS = 366 * 86400.0
MAX_PRIORITY = 100
_JOB_ID = re.compile(r"[0-9a-z]{1,32}")
MIN_BACK_OFF_SECONDS = 1.0
MAX_BACK_OFF_SECONDS = 86400.0
MAX_EXIT_CODE = 255
MIN_DURATION_SECONDS = 1.0
MAX_DURATION_SECONDS = 3650 * 86400.0
MIN_COPY_SECONDS = 10.0
MAX_COPY_SECONDS = 86400.0
MAX_AT_MOST = 100
MIN_WINDOW_SECONDS = 60.0
MAX_BUDGET_CORE_HOURS = 1e6


def validate_priority(priority: int) -> None:
    """Check the priority of a job.

    Raises:
        InvalidSpecError: It is none.
    """
    if abs(priority) > MAX_PRIORITY:
        raise wrong_field("priority", f"{priority} is not a number from -{MAX_PRIORITY} to {MAX_PRIORITY}")


def validate_over_time(spec: JobSpec) -> None:
    """Check what a spec says of its runs over time.

    Raises:
        InvalidSpecError: A field is impossible; ``field`` names it.
    """
    _check_retries(spec)
    validate_priority(spec.priority)
    if spec.priority_class and not is_tenant_name(spec.priority_class):
        raise wrong_field(
            "priority_class", f"{spec.priority_class[:64]!r} is not the name of a class; ask the operator"
        )
    if spec.warm_start and not _JOB_ID.fullmatch(spec.warm_start):
        raise wrong_field("warm_start", f"{spec.warm_start[:64]!r} is not the id of a job; 'tiercel ls' lists yours")
    if spec.every_seconds is not None:
        _check_seconds("every", spec.every_seconds, MIN_EVERY_SECONDS, MAX_EVERY_SECONDS)
    if spec.max_duration_seconds is not None:
        _check_seconds("max_duration", spec.max_duration_seconds, MIN_DURATION_SECONDS, MAX_DURATION_SECONDS)
    _validate_retrain(spec)
    if spec.copy_checkpoint_seconds is not None:
        _check_seconds("copy_checkpoint_every", spec.copy_checkpoint_seconds, MIN_COPY_SECONDS, MAX_COPY_SECONDS)


def _validate_retrain(spec: JobSpec) -> None:
    terms = spec.retrain
    if terms is None:
        return
    if not 0 < terms.budget_core_hours <= MAX_BUDGET_CORE_HOURS:
        raise wrong_field(
            "retrain.budget", f"{terms.budget_core_hours:g} is not a number of core-hours above 0, up to a million"
        )
    if terms.below is not None and not 0 < terms.below <= 1:
        raise wrong_field("retrain.below", f"{terms.below:g} is not an accuracy above 0 and up to 1, nor 'promise'")
    if not 1 <= terms.at_most <= MAX_AT_MOST:
        raise wrong_field("retrain.at_most", f"{terms.at_most} is not a number of retrainings from 1 to {MAX_AT_MOST}")
    if not set(terms.on) <= {ACCURACY, INPUTS} or len(set(terms.on)) < len(terms.on):
        raise wrong_field("retrain.on", f"has {list(terms.on)!r:.100}; write {ACCURACY}, {INPUTS} or both, each once")
    _check_seconds("retrain.window", terms.window_seconds, MIN_WINDOW_SECONDS, MAX_EVERY_SECONDS)
    _check_beside(spec)


def _check_beside(spec: JobSpec) -> None:
    if spec.every_seconds is not None:
        raise wrong_field("retrain", "is given beside 'every', which trains it again in any case; give one of the two")
    if spec.direction is not Direction.MAX or not all(0 < tier.target <= 1 for tier in spec.tiers):
        raise wrong_field(
            "retrain",
            f"goes by how often answers are right, with which {spec.metric!r} cannot be compared; use an accuracy as "
            "the metric, with tiers from 0 to 1, or leave it out",
        )
    if spec.data and all(each.sha256 for each in spec.data):
        raise wrong_field(
            "retrain",
            "would train on the same data again, as every data set has a sha256; leave that out of those that grow",
        )


def _check_retries(spec: JobSpec) -> None:
    if not 0 <= spec.retries <= MAX_RETRIES:
        raise wrong_field("retries", f"{spec.retries} is not a number of retries from 0 to {MAX_RETRIES}")
    if spec.retry_back_off_seconds is not None:
        _check_seconds("retries.back_off", spec.retry_back_off_seconds, MIN_BACK_OFF_SECONDS, MAX_BACK_OFF_SECONDS)
    codes = spec.retry_exit_codes
    wrong = [code for code in codes if not 1 <= code <= MAX_EXIT_CODE]
    if wrong:
        raise wrong_field(
            "retries.exit_codes",
            f"{wrong[0]} is not an exit code from 1 to {MAX_EXIT_CODE}; give 128 + N for signal N, such as 137",
        )
    if len(codes) > MAX_EXIT_CODE:
        raise wrong_field("retries.exit_codes", f"has {len(codes)} entries; at most {MAX_EXIT_CODE} are taken")
    if not spec.retries and (codes or spec.retry_back_off_seconds is not None):
        raise wrong_field("retries.count", "is 0, so that nothing else about retries means anything; give 1 or more")


def _check_seconds(field: str, seconds: float, least: float, most: float) -> None:
    if not (math.isfinite(seconds) and least <= seconds <= most):
        raise wrong_field(
            field,
            f"{seconds:g} s is not a time from {in_words(least)} to {in_words(most)}; give one such as 90m, or none",
        )
