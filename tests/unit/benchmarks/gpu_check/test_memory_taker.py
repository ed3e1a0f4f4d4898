from __future__ import annotations

import torch

from benchmarks.gpu_check.memory_taker import STAND_IN_BYTES, take_all


def test_it_takes_what_it_was_granted_and_is_then_told_what_to_do() -> None:
    told = take_all(torch.device("cpu"), STAND_IN_BYTES // 4)
    # A grant is for the process' context as well.
    assert told["limit_bytes"] / 2 <= told["held_bytes"] <= told["limit_bytes"]
    assert told["error"] == "OutOfMemoryError"
    assert "this job may hold 4,096 MiB" in told["sentence"]


def test_without_a_limit_there_is_no_sentence_about_one() -> None:
    told = take_all(torch.device("cpu"), STAND_IN_BYTES)
    assert told["error"] == "OutOfMemoryError"
    assert told["sentence"] == ""
