from __future__ import annotations

import torch

from benchmarks.gpu_check.memory_taker import take_all


def test_it_takes_what_it_was_granted_and_is_then_told_what_to_do() -> None:
    told = take_all(torch.device("cpu"), 1 << 28)
    assert told["held_bytes"] == told["limit_bytes"]
    assert told["error"] == "OutOfMemoryError"
    assert "this job may hold 256 MiB" in told["sentence"]


def test_without_a_limit_there_is_no_sentence_about_one() -> None:
    told = take_all(torch.device("cpu"), 1 << 30)
    assert told["error"] == "OutOfMemoryError"
    assert told["sentence"] == ""
