"""The text of tokens as they come."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Final

from tiercel.serving.runtime.decoder import Decoder

_BYTE: Final = 256


class TextOfTokens:
    """Of one answer: a character of several tokens comes with its last one.

    Args:
        decoder: Says which text its ids stand for, if any.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._text = codecs.getincrementaldecoder("utf-8")("replace") if decoder.text else None

    def of(self, tokens: Sequence[int], *, is_end: bool) -> str | None:
        """The text of the next tokens; None where the version has none for its ids."""
        if self._text is None:
            return None
        # Ids that are no bytes stand for no text.
        return self._text.decode(bytes(token for token in tokens if token < _BYTE), final=is_end)
