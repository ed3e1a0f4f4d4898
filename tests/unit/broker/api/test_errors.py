"""Errors become statuses in one place."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from tiercel.broker.api.errors import MAX_DETAILS_CHARACTERS, translated_errors
from tiercel.core import errors
from tiercel.core.errors import (
    CODE_KEY,
    ERRORS,
    FIELD_KEY,
    IllegalTransitionError,
    InvalidSpecError,
    NotFoundError,
    TiercelError,
)

Aborted = tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]


class Context:
    """What a call's context does when it is aborted: it remembers and raises."""

    def __init__(self) -> None:
        self.aborted: Aborted | None = None

    async def abort(self, code: grpc.StatusCode, details: str, trailing: tuple[tuple[str, str], ...]) -> None:
        self.aborted = (code, details, trailing)
        raise grpc.aio.AbortError


async def outcome_of(error: Exception) -> Aborted:
    context = Context()
    with pytest.raises(grpc.aio.AbortError):
        async with translated_errors(context):  # type: ignore[arg-type]  # all of a context that is used here
            raise error
    assert context.aborted is not None
    return context.aborted


async def test_an_error_for_users_keeps_its_words_code_and_field() -> None:
    code, details, trailing = await outcome_of(InvalidSpecError("tiers: is empty", field="tiers"))
    assert (code, details) == (grpc.StatusCode.INVALID_ARGUMENT, "tiers: is empty")
    assert dict(trailing) == {CODE_KEY: "invalid_spec", FIELD_KEY: "tiers"}
    assert (await outcome_of(NotFoundError("no")))[0] is grpc.StatusCode.NOT_FOUND


async def test_a_defect_is_named_and_nothing_else_is_told() -> None:
    code, details, trailing = await outcome_of(KeyError("/secret/path"))
    assert code is grpc.StatusCode.INTERNAL
    assert "KeyError" in details
    assert "secret" not in details
    assert dict(trailing)[CODE_KEY] == "internal"


async def test_what_a_user_sent_does_not_burst_the_header() -> None:
    _, details, _ = await outcome_of(InvalidSpecError(f"endpoint: {'x' * 100_000} is none; use a shorter one"))
    assert len(details) <= MAX_DETAILS_CHARACTERS + 3
    assert details.startswith("endpoint: ")
    assert details.endswith("use a shorter one")


async def test_an_abort_inside_stays_as_it_is() -> None:
    context = Context()
    with pytest.raises(grpc.aio.AbortError):
        async with translated_errors(context):  # type: ignore[arg-type]  # all of a context that is used here
            raise grpc.aio.AbortError
    assert context.aborted is None


class Gone:
    """The context of a call whose caller goes away while it is told of a refusal."""

    def __init__(self) -> None:
        self.aborts = 0

    async def abort(self, *_told: object) -> None:
        self.aborts += 1
        raise grpc.aio.InternalError if self.aborts == 1 else grpc.aio.UsageError("Abort already called!")


async def test_who_goes_away_while_it_is_refused_is_no_defect(caplog: pytest.LogCaptureFixture) -> None:
    context = Gone()
    call: Any = context
    with pytest.raises(grpc.aio.InternalError):  # which grpc keeps to itself
        async with translated_errors(call), translated_errors(call):  # as the gate does around a method
            raise NotFoundError("no")
    assert (context.aborts, caplog.records) == (1, [])


def test_every_error_has_a_code_of_its_own_and_a_status_that_grpc_knows() -> None:
    ours = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TiercelError)]
    assert set(ERRORS.values()) == set(ours) - {TiercelError}, "two have the same code"
    assert all(kind.grpc_status in grpc.StatusCode.__members__ for kind in ours)
    mute = {kind.code for kind in ERRORS.values() if kind.grpc_status == "INTERNAL"}
    silent = {"tier_missed", "setup", "inference_failed"}
    assert mute == {IllegalTransitionError.code, *silent}, "a defect, and what is no answer of the broker"
