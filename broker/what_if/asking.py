"""Asks a child process, so that the broker's loop goes on: one question of each who asks at a time, and few in all."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import sys
from collections.abc import Mapping

from tiercel.broker.what_if.present import Question, Told
from tiercel.core.errors import (
    DeadlineExceededError,
    InvalidSpecError,
    NotFoundError,
    OverloadedError,
    UnavailableError,
)
from tiercel.core.what_if import WhatIf

AT_A_TIME = 2
MAX_WAITING = 8
SECONDS = 30.0
_MODULE = "tiercel.broker.what_if"
_ERRORS: Mapping[str, type[InvalidSpecError | NotFoundError]] = {
    each.__name__: each for each in (InvalidSpecError, NotFoundError)
}


class Asking:
    """Child processes that answer questions, each one of them one."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(AT_A_TIME)
        self._asking: set[str] = set()

    async def ask(self, question: Question, asker: str) -> WhatIf:
        """Have a question answered.

        Args:
            question: The question.
            asker: Who asks, of whom one question is answered at a time.

        Raises:
            OverloadedError: The asker's last question is not answered yet, or too many others wait.
            DeadlineExceededError: It took too long.
            UnavailableError: The simulation failed, or its process was ended.
            InvalidSpecError: There is no such policy or option.
            NotFoundError: There is no such job, node or endpoint.
        """
        if asker in self._asking:
            raise OverloadedError("a what-if of yours is being answered; ask again when it is")
        if len(self._asking) >= MAX_WAITING:
            raise OverloadedError(f"{MAX_WAITING} what-ifs are being answered; ask again in a few seconds")
        self._asking.add(asker)
        try:
            async with asyncio.timeout(SECONDS), self._turns:
                return await _answered(question)
        except TimeoutError:
            message = f"the what-if took longer than {SECONDS:g} s and was ended; ask again when fewer jobs are active"
            raise DeadlineExceededError(message) from None
        finally:
            self._asking.discard(asker)


async def _answered(question: Question) -> WhatIf:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", _MODULE, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        output, _ = await process.communicate(pickle.dumps(question))
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0:
        raise UnavailableError(f"the process that simulates ended with code {process.returncode}; ask again")
    told: Told = pickle.loads(output)  # noqa: S301 - from the process that was started above, nobody else
    if told.answer is not None:
        return told.answer
    if told.code in _ERRORS:
        raise _ERRORS[told.code](told.error, field=told.field)
    raise UnavailableError(f"no answer: {told.error}; ask with other changes")
