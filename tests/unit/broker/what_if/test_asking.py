"""A child process that fails, dies or takes too long ends its own question, and no other."""

from __future__ import annotations

import pytest

from tiercel.broker.scheduling.interface import Snapshot, Trigger
from tiercel.broker.what_if import asking
from tiercel.broker.what_if.asking import Asking
from tiercel.broker.what_if.present import Present, Question, bounded
from tiercel.core.errors import DeadlineExceededError, UnavailableError
from tiercel.core.what_if import Changes

QUESTION = Question(bounded(Present(Snapshot(1e9, Trigger.INTERVAL, (), ()), "fair")), Changes(), "alice")


async def test_what_a_dead_or_slow_child_means_and_that_the_next_question_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask = Asking().ask
    with monkeypatch.context() as patched:
        patched.setattr(asking, "_MODULE", "no_such_module")
        with pytest.raises(UnavailableError, match="ended with code 1"):
            await ask(QUESTION, "alice")
    with monkeypatch.context() as patched:
        patched.setattr(asking, "SECONDS", 0.001)
        with pytest.raises(DeadlineExceededError):
            await ask(QUESTION, "alice")
    assert (await ask(QUESTION, "alice")).jobs == ()
