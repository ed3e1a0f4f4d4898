"""Text and ids by a tokenizer.json: streams lose nothing, and what is broken or unbounded is refused."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from tokenizers import Tokenizer, decoders, models

from testing.small_tokenizer import LINES, small_tokenizer
from testing.until import until
from tiercel.core.errors import ArtefactRefusedError, InvalidRequestError, UnavailableError
from tiercel.serving.runtime import tokenizer_process
from tiercel.serving.runtime.tokenizer import Tokenizer as Tokens
from tiercel.serving.runtime.tokenizer import tokenizer_of
from tiercel.serving.runtime.tokenizer_child import loaded
from tiercel.serving.runtime.tokenizer_process import COMMAND, TokenizerProcess


@pytest.fixture(scope="module")
def trained() -> Tokenizer:
    return small_tokenizer()


def children() -> set[psutil.Process]:
    """The processes of tokenizers, those included that are about to leave."""
    found = set()
    for each in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "tokenizer_child" in " ".join(each.cmdline()):
                found.add(each)
    return found


def loaded_with_its_process(said: str) -> tuple[Tokens, psutil.Process]:
    before = children()
    tokenizer = tokenizer_of(said)
    assert tokenizer is not None
    (process,) = children() - before
    return tokenizer, process


def streamed(tokenizer: Any, ids: list[int]) -> list[str]:
    answer = tokenizer.answer()
    return [*(answer.of([each], is_end=False) for each in ids), answer.of([], is_end=True)]


async def test_a_stream_is_the_whole_text_and_cuts_no_character(trained: Tokenizer) -> None:
    tokenizer = tokenizer_of(trained.to_str())
    assert tokenizer is not None
    for text in (*LINES, "🦊東" * 100):
        ids = (await tokenizer.ids(text, 1000)).tolist()
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


async def test_long_texts_and_half_characters_are_refused(trained: Tokenizer) -> None:
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
        loaded(trained.to_str())


async def test_nobody_waits_while_one_is_loaded(
    trained: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "gate")
    waits = f"import os, sys; open({str(tmp_path / 'gate')!r}).read(); os.execv(sys.executable, {COMMAND!r})"
    monkeypatch.setattr(tokenizer_process, "COMMAND", [sys.executable, "-c", waits])
    loading = asyncio.create_task(asyncio.to_thread(tokenizer_of, trained.to_str() + " "))
    for _ in range(100):
        await asyncio.sleep(0)  # a turn of the event loop, which others have meanwhile
    assert not loading.done()
    (tmp_path / "gate").write_text("")
    tokenizer = await loading
    assert tokenizer is not None
    assert tokenizer.answer().of((await tokenizer.ids("a fox", 10)).tolist(), is_end=True) == "a fox"


async def test_its_process_is_begun_again_where_it_ended(trained: Tokenizer) -> None:
    before, process = children(), TokenizerProcess(trained.to_str())
    process.load()
    wanted = process.ids(b"fox").tolist()
    (child,) = children() - before
    child.kill()
    with pytest.raises(UnavailableError, match="input_ids"):
        process.ids(b"fox")
    assert process.ids(b"fox").tolist() == wanted == trained.encode("fox").ids
    process.close()


async def test_a_process_goes_with_its_tokenizer(trained: Tokenizer) -> None:
    tokenizer, child = loaded_with_its_process(trained.to_str() + "\n")
    del tokenizer
    gc.collect()
    await until(lambda: not child.is_running())


async def test_who_does_not_want_the_ids_any_more_is_passed_over(trained: Tokenizer) -> None:
    tokenizer, child = loaded_with_its_process(trained.to_str() + "\t")
    child.suspend()
    asked = [tokenizer.ids("fox " * 100, 1000) for _ in range(50)]
    for each in asked:
        each.cancel()
    last = tokenizer.ids("fox", 1000)
    for _ in range(100):
        await asyncio.sleep(0)
    assert not last.done()
    child.resume()
    assert (await last).tolist() == trained.encode("fox").ids


async def test_a_server_that_leaves_waits_for_no_text(trained: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_process, "_TEXT_SECONDS", 10_000.0)
    tokenizer, child = loaded_with_its_process(trained.to_str() + "\r")
    child.suspend()
    asked = [tokenizer.ids("fox", 1000) for _ in range(3)]
    tokenizer.end()
    for each in asked:
        with pytest.raises(UnavailableError):
            await each
    assert not child.is_running()
