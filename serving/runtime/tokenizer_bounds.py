"""What a ``tokenizer.json`` may do, so that whoever wrote it takes no more of the server than its text is long. Pure.

It is run in the server's own process, for texts of anybody. So steps are of kinds whose time is about that of the text,
what they make of a text is bounded, and regular expressions are those that published models use: one can be written
that takes years.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Final

from tiercel.core.errors import ArtefactRefusedError

_MOST_GROWTH: Final = 256
_MOST_TOKEN_CHARACTERS: Final = 1024
_MOST_WORD_CHARACTERS: Final = 1000
_MOST_SPECIAL_IDS: Final = 64
_WHAT: Final = "its tokenizer.json "

_CONTRACTIONS: Final = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST: Final = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_NUMBERS: Final = r"\p{N}{1,3}|"
_REST_OF_PATHS: Final = _REST.replace(r"[\r\n]*", r"[\r\n/]*")
_WORDS: Final = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|"
_UPPER: Final = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_KNOWN: Final = frozenset({
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",  # GPT-2
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    _WORDS + r"\p{N}{1,3}|" + _REST,  # GPT-4, Llama 3
    _WORDS + r"\p{N}|" + _REST,  # Qwen 2
    f"{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|{_UPPER}+{_LOWER}*{_CONTRACTIONS}?|" + _NUMBERS + _REST_OF_PATHS,  # GPT-4o
    r"\s+", r"\d", r"\p{N}", r"\p{N}{1,3}", " {2,}",
})  # fmt: skip


def check_bounds(said: object) -> None:
    """Refuse a tokenizer that may do more than it should.

    Args:
        said: The JSON of a ``tokenizer.json``.

    Raises:
        ArtefactRefusedError: It may; the message says where.
    """
    try:
        _check(said)
    except ArtefactRefusedError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
        raise ArtefactRefusedError(f"{_WHAT}is not in the form of Hugging Face's tokenizers") from error


def _check(said: Any) -> None:
    _check_model(said["model"])
    _check_tokens(str(each["content"]) for each in said.get("added_tokens") or ())
    before = _growth(said, "normalizer", _NORMALIZERS) * _growth(said, "pre_tokenizer", _PRE_TOKENIZERS)
    for growth in (before * _growth(said, "post_processor", _POST_PROCESSORS), _growth(said, "decoder", _DECODERS)):
        if growth > _MOST_GROWTH:
            raise ArtefactRefusedError(f"{_WHAT}may make {growth} bytes of one; {_MOST_GROWTH} are possible")


def _check_model(model: Any) -> None:
    kind = model["type"]
    if kind not in {"BPE", "Unigram", "WordLevel", "WordPiece"}:
        raise ArtefactRefusedError(f"{_WHAT}has a model of type {str(kind)[:40]!r}, which is not known here")
    vocabulary = model["vocab"]
    _check_tokens(vocabulary if isinstance(vocabulary, dict) else (token for token, _ in vocabulary))
    _check_tokens(model.get(name) or "" for name in ("continuing_subword_prefix", "end_of_word_suffix"))
    if model.get("max_input_chars_per_word", 0) > _MOST_WORD_CHARACTERS:
        raise ArtefactRefusedError(f"{_WHAT}has words of more than {_MOST_WORD_CHARACTERS} characters")


def _check_tokens(tokens: Iterable[str]) -> None:
    if max(map(len, tokens), default=0) > _MOST_TOKEN_CHARACTERS:
        raise ArtefactRefusedError(f"{_WHAT}has a token of more than {_MOST_TOKEN_CHARACTERS} characters")


_Kinds = dict[str, Callable[[Any], int]]


def _growth(said: Any, part: str, kinds: _Kinds) -> int:
    """Bytes that this part may make of one."""
    step = said.get(part)
    return 1 if step is None else _of_step(step, part, kinds)


def _of_step(step: Any, part: str, kinds: _Kinds) -> int:
    kind = step["type"]
    if kind == "Sequence":
        steps = next(value for key, value in step.items() if key != "type")
        return math.prod(_of_step(each, part, kinds) for each in steps)
    if kind not in kinds:
        raise ArtefactRefusedError(f"{_WHAT}has the {part} {str(kind)[:40]!r}, which is not run here")
    return kinds[kind](step)


def _times(growth: int) -> Callable[[Any], int]:
    return lambda _: growth


def _replaced(step: Any) -> int:
    _split(step)
    pattern = step["pattern"].get("String", "")
    size = len(step["content"].encode())
    return max(1, -(-size // len(pattern))) if pattern else size + 1


def _split(step: Any) -> int:
    ((kind, pattern),) = step["pattern"].items()
    if not pattern or (kind != "String" and pattern not in _KNOWN):
        raise ArtefactRefusedError(
            f"{_WHAT}has a regular expression of its own, {str(pattern)[:60]!r}, and one may take for ever; those of "
            "GPT-2, GPT-4, GPT-4o, Llama 3 and Qwen are run here, such as that of the pre_tokenizer ByteLevel"
        )
    return 1


def _metaspace(step: Any) -> int:
    return 2 * len(step.get("replacement", "").encode())


def _template(step: Any) -> int:
    if any(len(each["ids"]) > _MOST_SPECIAL_IDS for each in step["special_tokens"].values()):
        raise ArtefactRefusedError(f"{_WHAT}has a special token of more than {_MOST_SPECIAL_IDS} ids")
    return max(1, len(step["single"]))


# Of normal forms, as the Unicode FAQ "Normalization" gives it for UTF-8.
_NORMALIZERS: Final[_Kinds] = {
    "NFC": _times(3), "NFD": _times(3), "NFKC": _times(11), "NFKD": _times(11), "BertNormalizer": _times(6),
    "Lowercase": _times(2), "Strip": _times(1), "StripAccents": _times(1), "Nmt": _times(1), "ByteLevel": _times(2),
    "Prepend": lambda step: 1 + len(step["prepend"].encode()), "Replace": _replaced,
}  # fmt: skip
_PRE_TOKENIZERS: Final[_Kinds] = {
    "BertPreTokenizer": _times(1), "ByteLevel": _times(2), "CharDelimiterSplit": _times(1), "Digits": _times(1),
    "Metaspace": _metaspace, "Punctuation": _times(1), "Split": _split, "UnicodeScripts": _times(1),
    "Whitespace": _times(1), "WhitespaceSplit": _times(1),
}  # fmt: skip
_POST_PROCESSORS: Final[_Kinds] = {
    "BertProcessing": _times(1), "ByteLevel": _times(1), "RobertaProcessing": _times(1),
    "TemplateProcessing": _template,
}  # fmt: skip
_DECODERS: Final[_Kinds] = {
    "BPEDecoder": _times(2), "ByteFallback": _times(3), "ByteLevel": _times(3), "Fuse": _times(1),
    "Metaspace": _times(1), "Replace": _replaced, "Strip": _times(1), "WordPiece": _times(2),
}  # fmt: skip
