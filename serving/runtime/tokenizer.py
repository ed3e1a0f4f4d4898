"""From text to a decoder's ids and back, by the tokenizer that its file brings."""

from __future__ import annotations

import codecs
import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakValueDictionary

from tiercel.core.errors import ArtefactRefusedError, InvalidRequestError
from tiercel.core.tokenizers import MAX_TOKENIZER_BYTES, TEXT_OF_BYTES
from tiercel.serving.runtime.specs import first_line
from tiercel.serving.runtime.tokenizer_bounds import check_bounds

if TYPE_CHECKING:
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

    def ids(self, text: str, most: int) -> Sequence[int]:
        """The ids of a prompt of which at most so many are of use.

        Raises:
            InvalidRequestError: It has none, or the text is far too long.
        """

    def answer(self) -> AnswerText:
        """What makes the text of one answer."""


def tokenizer_of(said: str) -> Tokenizer | None:
    """The tokenizer that a file's metadata name or hold; None where they say nothing.

    Versions that bring the same one share it: to load it takes up to a second, in which no other Python code runs.

    Raises:
        ArtefactRefusedError: It is none, or may do what is not bounded, or cannot be run here.
    """
    if said in {"", TEXT_OF_BYTES}:
        return _Bytes() if said else None
    content = said.encode(errors="replace")
    if len(content) > MAX_TOKENIZER_BYTES:
        raise ArtefactRefusedError(f"its tokenizer has {len(content)} bytes; {MAX_TOKENIZER_BYTES} are possible")
    key = hashlib.sha256(content).digest()
    found = _loaded.get(key)
    if found is None:
        found = _loaded[key] = _Pieces(_read(said))
    return found


def _read(said: str) -> tokenizers.Tokenizer:
    try:
        content = json.loads(said)
    except (ValueError, RecursionError) as error:
        raise ArtefactRefusedError(
            f"its metadata 'tokenizer' begins with {said[:40]!r}, and is neither '{TEXT_OF_BYTES}' nor a Hugging Face "
            "tokenizer.json; leave it out to have callers send ids"
        ) from error
    check_bounds(content)
    try:
        import tokenizers  # an extra; a server whose models bring none does without it
    except ImportError as error:
        raise ArtefactRefusedError(
            "it brings a tokenizer.json, and this server lacks the package to run it: pip install "
            "'tiercel[tokenizers]' where the server runs, and deliver it again"
        ) from error
    try:
        # Written anew: what is read is what was checked, whatever others make of a key that is there twice.
        found = tokenizers.Tokenizer.from_str(json.dumps(content))
    except BaseException as error:  # a defect in Rust is no Exception
        _raise_if_asked_to_end(error)
        raise ArtefactRefusedError(f"its tokenizer.json cannot be loaded: {first_line(error)}") from error
    found.no_padding()
    found.no_truncation()
    return found


class _Bytes:
    """See :class:`Tokenizer`."""

    def ids(self, text: str, most: int) -> Sequence[int]:
        """See :meth:`Tokenizer.ids`."""
        return _utf8(text)

    def answer(self) -> AnswerText:
        """See :meth:`Tokenizer.answer`."""
        return _TextOfBytes()


class _TextOfBytes:
    """See :class:`AnswerText`."""

    def __init__(self) -> None:
        self._text = codecs.getincrementaldecoder("utf-8")("replace")

    def of(self, tokens: Sequence[int], *, is_end: bool) -> str:
        """See :meth:`AnswerText.of`; ids that are no bytes stand for no text."""
        return self._text.decode(bytes(token for token in tokens if token < _BYTE), final=is_end)


class _Pieces:
    """A ``tokenizer.json``; see :class:`Tokenizer`."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer

    def ids(self, text: str, most: int) -> Sequence[int]:
        """See :meth:`Tokenizer.ids`; special tokens stand where the tokenizer's post-processor puts them."""
        size = len(_utf8(text))
        if size > most * _MOST_BYTES_PER_TOKEN:
            raise InvalidRequestError(
                f"text_input: it has {size} bytes, and {most * _MOST_BYTES_PER_TOKEN} are read for a prompt of at most "
                f"{most} tokens; send a shorter one"
            )
        try:
            return self._tokenizer.encode(text).ids
        except BaseException as error:  # a defect in Rust is no Exception
            _raise_if_asked_to_end(error)
            raise InvalidRequestError(
                f"text_input: the version's tokenizer does not take it: {first_line(error)}"
            ) from error

    def text(self, ids: Sequence[int]) -> str:
        """The text of ids that stand together, without special tokens; empty where there is none."""
        try:
            return self._tokenizer.decode(ids)
        except BaseException as error:  # a defect in Rust is no Exception
            _raise_if_asked_to_end(error)
            return ""

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


def _raise_if_asked_to_end(error: BaseException) -> None:
    if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
        raise error


_loaded: WeakValueDictionary[bytes, _Pieces] = WeakValueDictionary()
