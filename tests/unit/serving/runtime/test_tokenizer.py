"""Text and ids by a tokenizer.json: streams lose nothing, and what is broken or unbounded is refused."""

from __future__ import annotations

import json
import random
import sys
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models

from testing.small_tokenizer import LINES, small_tokenizer
from tiercel.core.errors import ArtefactRefusedError, InvalidRequestError
from tiercel.serving.runtime.tokenizer import tokenizer_of


@pytest.fixture(scope="module")
def trained() -> Tokenizer:
    return small_tokenizer()


def streamed(tokenizer: Any, ids: list[int]) -> list[str]:
    answer = tokenizer.answer()
    return [*(answer.of([each], is_end=False) for each in ids), answer.of([], is_end=True)]


def test_a_stream_is_the_whole_text_and_cuts_no_character(trained: Tokenizer) -> None:
    tokenizer = tokenizer_of(trained.to_str())
    assert tokenizer is not None
    for text in (*LINES, "🦊東" * 100):
        ids = list(tokenizer.ids(text, 1000))
        assert ids[0] == 0, "the post-processor's special token"
        parts = streamed(tokenizer, ids)
        assert "".join(parts) == text
        assert "\ufffd" not in "".join(parts)
        assert max(map(len, parts)) < 10, "it comes as it is made"
        assert tokenizer.answer().of(ids, is_end=True) == text


def test_what_is_no_text_is_streamed_like_the_whole_too(trained: Tokenizer) -> None:
    tokenizer = tokenizer_of(trained.to_str())
    for seed in range(20):
        ids = random.Random(seed).choices(range(300), k=200)
        assert "".join(streamed(tokenizer, ids)) == trained.decode(ids)


def test_a_space_before_a_word_is_not_lost() -> None:
    words = {"<unk>": 0, "▁the": 1, "▁fox": 2, "es": 3, "▁": 4}
    plain = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    plain.decoder = decoders.Metaspace()
    tokenizer = tokenizer_of(plain.to_str())
    assert streamed(tokenizer, [1, 2, 3, 4, 2]) == ["the", " fox", "es", " ", " fox", ""]


def test_equal_ones_are_loaded_once(trained: Tokenizer) -> None:
    assert tokenizer_of(trained.to_str()) is (kept := tokenizer_of(trained.to_str()))
    assert kept is not None


def test_long_texts_and_half_characters_are_refused(trained: Tokenizer) -> None:
    tokenizer = tokenizer_of(trained.to_str())
    assert tokenizer is not None
    for text in ("a" * 161, "\ud800"):
        with pytest.raises(InvalidRequestError, match="text_input"):
            tokenizer.ids(text, 10)


EVIL: dict[str, dict[str, Any]] = {
    "regular expression": {"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+$"}}},
    "bytes of one": {"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}},
    "normalizer 'Precompiled'": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}},
    "not in the form": {"model": {}},
    "cannot be loaded": {"decoder": {"type": "WordPiece"}},
    "more than 1024": {"added_tokens": [{"content": "a" * 2000}]},
}  # fmt: skip


@pytest.mark.parametrize("said", EVIL)
def test_what_is_hostile_or_broken_is_refused(trained: Tokenizer, said: str) -> None:
    with pytest.raises(ArtefactRefusedError, match=said):
        tokenizer_of(json.dumps(json.loads(trained.to_str()) | EVIL[said]))


def test_what_is_none_is_refused() -> None:
    with pytest.raises(ArtefactRefusedError, match=r"tokenizer\.json"):
        tokenizer_of("../../etc/passwd")


def test_without_the_package_it_says_what_to_install(trained: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ArtefactRefusedError, match=r"tiercel\[tokenizers\]"):
        tokenizer_of(trained.to_str() + " ")
