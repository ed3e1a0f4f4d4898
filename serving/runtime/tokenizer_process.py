"""The server's side of the process that has one tokenizer. Blocks; one thread at a time uses it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from subprocess import DEVNULL
from typing import Final

import numpy as np

from tiercel.core.errors import ArtefactRefusedError, InvalidRequestError, UnavailableError
from tiercel.serving.child_environment import child_environment
from tiercel.serving.runtime.tokenizer_child import Vocabulary, receive, send
from tiercel.serving.tensors import Array

COMMAND: Final = [sys.executable, "-P", "-m", "tiercel.serving.runtime.tokenizer_child"]
_LOAD_SECONDS: Final = 60.0
_TEXT_SECONDS: Final = 30.0
_MOST_FRAME_BYTES: Final = 64 * 1024**2


class TokenizerProcess:
    """See the module; it is begun when it is needed, and again where it has ended.

    Args:
        said: The text of a ``tokenizer.json``.
    """

    def __init__(self, said: str) -> None:
        self._said = said
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._is_over = False

    def load(self) -> Vocabulary:
        """Begin, and have the tokenizer loaded.

        Raises:
            ArtefactRefusedError: It is not fit to be run.
            UnavailableError: The process does not begin, or ends.
        """
        return self._begin()[1]

    def ids(self, text: bytes) -> Array:
        """The ids of a prompt, uint32.

        Raises:
            InvalidRequestError: The tokenizer does not take it.
            UnavailableError: The process ended, or took too long.
        """
        found = self._socket or self._begin()[0]
        try:
            send(found, text)
            refused = receive(found, _MOST_FRAME_BYTES)
            if not refused:
                return np.frombuffer(receive(found, _MOST_FRAME_BYTES), np.uint32)
            raise InvalidRequestError(f"text_input: the version's tokenizer does not take it: {refused.decode()}")
        except (OSError, EOFError, ValueError) as error:  # the last where it says what makes no sense
            self.close()
            raise UnavailableError(
                "the process that runs the version's tokenizer ended, or took too long for a text; try again in a "
                "moment, or send the prompt as input_ids"
            ) from error

    def end(self) -> None:
        """End the process for good, whatever it is busy with; any thread may say so. Does not block."""
        self._is_over = True
        if self._process is not None:
            self._process.kill()

    def _begin(self) -> tuple[socket.socket, Vocabulary]:
        self.close()
        if self._is_over:
            raise UnavailableError("the server is leaving; ask the one that follows it")
        ours, theirs = socket.socketpair()
        self._socket = ours
        ours.settimeout(_LOAD_SECONDS)
        environment = child_environment() | {"TOKENIZERS_PARALLELISM": "false"}
        try:
            with theirs:
                self._process = subprocess.Popen(COMMAND, stdin=theirs.fileno(), stdout=DEVNULL, env=environment)
            send(ours, self._said.encode(errors="replace"))
            if refused := receive(ours, _MOST_FRAME_BYTES):
                self.close()
                raise ArtefactRefusedError(refused.decode())
            vocabulary = Vocabulary(*(receive(ours, _MOST_FRAME_BYTES) for _ in Vocabulary._fields))
        except (OSError, EOFError) as error:
            self.close()
            raise UnavailableError(
                "the process that runs the version's tokenizer does not start, or takes more memory or time than it "
                "may; see the server's log"
            ) from error
        ours.settimeout(_TEXT_SECONDS)
        return ours, vocabulary

    def close(self) -> None:
        """End the process, if it runs."""
        process, self._process = self._process, None
        found, self._socket = self._socket, None
        if found is not None:
            found.close()
        if process is not None:
            with contextlib.suppress(ProcessLookupError):  # it may end by itself at this moment
                process.kill()
            process.wait()
