"""From text to a decoder's ids and back, by the tokenizer that its file brings.

A ``tokenizer.json`` is run in a process of its own, see :mod:`.tokenizer_child`. The texts of answers are made here, by
its decoder, of the tokens that the process told once.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import hashlib
import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary, finalize

import numpy as np

from tiercel.core.errors import ArtefactRefusedError, InvalidRequestError
from tiercel.core.tokenizers import MAX_TOKENIZER_BYTES, TEXT_OF_BYTES
from tiercel.serving.runtime.tokenizer_child import Vocabulary
from tiercel.serving.runtime.tokenizer_process import TokenizerProcess
from tiercel.serving.tensors import Array

with contextlib.suppress(ImportError):  # an extra; imported now, since that keeps Python's lock while others wait
    import tokenizers

_BYTE: Final = 256
# A text is measured before it is read, so that one that cannot fit costs nothing. Words have 4 to 6 bytes a token.
_MOST_BYTES_PER_TOKEN: Final = 16
_MOST_HELD: Final = 64
_BROKEN: Final = "\ufffd"  # in place of bytes that are no character, or not yet


class AnswerText(Protocol):
    """The text of one answer, as its tokens come."""

    def of(self, tokens: Sequence[int], *, is_end: bool) -> str:
        """The text of the next tokens; a character of several tokens comes with its last one."""


class Tokenizer(Protocol):
    """Between texts and ids."""

    def ids(self, text: str, most: int) -> asyncio.Future[Array]:
        """The ids of a prompt of which at most so many are of use; on the event loop.

        Returns:
            Whole numbers, or an InvalidRequestError or UnavailableError, in the next turn of the event loop or later.
            Who cancels it does not want them any more.

        Raises:
            InvalidRequestError: The text has half of a character, or is far too long.
        """

    def answer(self) -> AnswerText:
        """What makes the text of one answer."""

    def end(self) -> None:
        """The server leaves: no more ids, so that nothing waits for a text that takes long."""


def tokenizer_of(said: str) -> Tokenizer | None:
    """The tokenizer that a file's metadata name or hold; None where they say nothing. Blocks.

    Versions that bring the same one share it.

    Raises:
        ArtefactRefusedError: It is none, or may do what is not bounded, or cannot be run here.
        UnavailableError: Its process cannot be started.
    """
    if said in {"", TEXT_OF_BYTES}:
        return _Bytes() if said else None
    content = said.encode(errors="replace")
    if len(content) > MAX_TOKENIZER_BYTES:
        raise ArtefactRefusedError(f"its tokenizer has {len(content)} bytes; {MAX_TOKENIZER_BYTES} are possible")
    key = hashlib.sha256(content).digest()
    with _loading:
        found = _loaded.get(key)
        if found is None:
            process = TokenizerProcess(said)
            found = _loaded[key] = _Pieces(process, process.load())
    return found


class _Bytes:
    """See :class:`Tokenizer`."""

    def ids(self, text: str, most: int) -> asyncio.Future[Array]:
        """See :meth:`Tokenizer.ids`."""
        del most
        found: asyncio.Future[Array] = asyncio.get_running_loop().create_future()
        found.set_result(np.frombuffer(_utf8(text), np.uint8))
        return found

    def answer(self) -> AnswerText:
        """See :meth:`Tokenizer.answer`."""
        return _TextOfBytes()

    def end(self) -> None:
        """See :meth:`Tokenizer.end`."""


class _TextOfBytes:
    """See :class:`AnswerText`."""

    def __init__(self) -> None:
        self._text = codecs.getincrementaldecoder("utf-8")("replace")

    def of(self, tokens: Sequence[int], *, is_end: bool) -> str:
        """See :meth:`AnswerText.of`; ids that are no bytes stand for no text."""
        return self._text.decode(bytes(token for token in tokens if token < _BYTE), final=is_end)


class _Pieces:
    """A ``tokenizer.json``; see :class:`Tokenizer`."""

    def __init__(self, process: TokenizerProcess, vocabulary: Vocabulary) -> None:
        self._process = process
        self._vocabulary = vocabulary
        self._ends = np.frombuffer(vocabulary.ends, np.uint32)
        self._decoder = _decoder(vocabulary)
        # One text at a time, and those that nobody waits for any more are passed over.
        self._thread = ThreadPoolExecutor(1, "tokenizer")
        finalize(self, _end, self._thread, process)

    def ids(self, text: str, most: int) -> asyncio.Future[Array]:
        """See :meth:`Tokenizer.ids`; special tokens stand where the tokenizer's post-processor puts them."""
        content = _utf8(text)
        if len(content) > most * _MOST_BYTES_PER_TOKEN:
            raise InvalidRequestError(
                f"text_input: it has {len(content)} bytes, and {most * _MOST_BYTES_PER_TOKEN} are read for a prompt of "
                f"at most {most} tokens; send a shorter one"
            )
        return asyncio.get_running_loop().run_in_executor(self._thread, self._process.ids, content)

    def end(self) -> None:
        """See :meth:`Tokenizer.end`."""
        self._process.end()

    def text(self, ids: Sequence[int]) -> str:
        """The text of ids that stand together, without special tokens; empty where there is none."""
        tokens = [token for token in map(self._token, ids) if token]
        try:
            return " ".join(tokens) if self._decoder is None else self._decoder.decode(tokens)
        except BaseException as error:  # a defect in Rust is no Exception
            if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
                raise
            return ""

    def _token(self, number: int) -> str:
        if number >= len(self._ends):
            return ""
        begin = self._ends[number - 1] if number else 0
        return self._vocabulary.tokens[begin : self._ends[number]].decode()

    def answer(self) -> AnswerText:
        """See :meth:`Tokenizer.answer`."""
        return _TextOfPieces(self)


class _TextOfPieces:
    """See :class:`AnswerText`: the end of a text that grows, read with the few tokens before it."""

    # A tokenizer leaves the space before the first token of a text out, or makes it of two tokens, so that the text of
    # one token by itself is not what it adds.

    def __init__(self, tokenizer: _Pieces) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []  # tokens that were sent, and after them those that were not, or in part
        self._before = 0  # how many of the window were sent when the others came
        self._sent = 0  # characters of the window's text that were sent

    def of(self, tokens: Sequence[int], *, is_end: bool) -> str:
        """See :meth:`AnswerText.of`."""
        parts = [self._next(token) for token in tokens]
        if is_end:
            parts.append(self._tokenizer.text(self._window)[self._sent :])
        return "".join(parts)

    def _next(self, token: int) -> str:
        self._window.append(token)
        text = self._tokenizer.text(self._window)
        is_held_long = len(self._window) - self._before >= _MOST_HELD
        certain = text if is_held_long else text.rstrip(_BROKEN)
        new = certain[self._sent :]
        self._sent += len(new)
        if new and len(certain) == len(text):
            del self._window[: self._before]
            self._before = len(self._window)
            self._sent = len(self._tokenizer.text(self._window))
        elif is_held_long:
            del self._window[self._before :]  # they have no text, such as special tokens
        return new


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError("text_input: it has half of a character (a lone surrogate)") from error


def _decoder(vocabulary: Vocabulary) -> Any:
    """The part of a tokenizer that makes a text of tokens; None where it has none."""
    parts = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor"))
    model = {"type": "WordLevel", "vocab": {}, "unk_token": ""}
    said = {"version": "1.0", "added_tokens": [], "model": model, "decoder": json.loads(vocabulary.decoder), **parts}
    return tokenizers.Tokenizer.from_str(json.dumps(said)).decoder


def _end(thread: ThreadPoolExecutor, process: TokenizerProcess) -> None:
    try:
        thread.submit(process.close)
    except RuntimeError:  # the interpreter ends, and its threads have
        process.close()
    thread.shutdown(wait=False)


_loading: Final = threading.Lock()
_loaded: Final[WeakValueDictionary[bytes, _Pieces]] = WeakValueDictionary()
