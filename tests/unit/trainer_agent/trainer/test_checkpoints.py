from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tiercel.trainer_agent.trainer.checkpoints import LATEST_FILE, PREVIOUS_FILE, CheckpointStore
from tiercel.trainer_agent.trainer.pytorch.checkpoint_format import PyTorchFormat


def store_in(directory: Path, *, clock: Callable[[], float] = lambda: 0.0, interval: float = 5.0) -> CheckpointStore:
    return CheckpointStore(directory, PyTorchFormat(), interval_seconds=interval, clock=clock)


def state(number: int) -> dict[str, object]:
    return {"epoch": number, "weights": torch.full((1000,), float(number))}


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    store = store_in(tmp_path / "checkpoints")
    assert store.load() is None
    store.save(state(1))
    store.save(state(2))
    loaded = store_in(tmp_path / "checkpoints").load()
    assert loaded is not None
    assert loaded["epoch"] == 2
    assert torch.equal(loaded["weights"], torch.full((1000,), 2.0))


def test_the_files_need_no_trust(tmp_path: Path) -> None:
    store_in(tmp_path).save(state(1))
    assert torch.load(tmp_path / LATEST_FILE, weights_only=True)["epoch"] == 1


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_bit_of_a_weight(path: Path) -> None:
    data = bytearray(path.read_bytes())
    where = data.index(torch.full((4,), 2.0).numpy().tobytes())
    data[where] ^= 1
    path.write_bytes(data)


def replace_by_nonsense(path: Path) -> None:
    path.write_bytes(b"nonsense")


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut, flip_a_bit_of_a_weight, replace_by_nonsense, empty, Path.unlink])
def test_a_damaged_checkpoint_is_replaced_by_the_one_before(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    store = store_in(tmp_path)
    store.save(state(1))
    store.save(state(2))
    damage(tmp_path / LATEST_FILE)
    loaded = store.load()
    assert loaded is not None
    assert loaded["epoch"] == 1
    assert torch.equal(loaded["weights"], torch.full((1000,), 1.0))


def test_if_both_are_damaged_training_begins_anew(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.save(state(1))
    store.save(state(2))
    cut(tmp_path / LATEST_FILE)
    cut(tmp_path / PREVIOUS_FILE)
    assert store.load() is None


def test_a_checkpoint_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.save(state(1))
    with pytest.raises(Exception, match="pickle"):
        store.save({"epoch": 2, "unpicklable": lambda: None})
    loaded = store.load()
    assert loaded is not None
    assert loaded["epoch"] == 1


def test_a_checkpoint_is_due_after_the_interval(tmp_path: Path) -> None:
    readings = iter([100.0, 100.0, 105.0, 105.0, 105.0, 105.0, 109.9, 110.0])
    store = store_in(tmp_path, clock=lambda: next(readings))
    due = [store.is_due, store.is_due]
    store.save(state(1))  # reads the clock three times
    due += [store.is_due, store.is_due]
    assert due == [False, True, False, True]


def test_checkpoints_that_take_long_come_less_often(tmp_path: Path) -> None:
    readings = iter([0.0, 0.0, 2.0, 2.0, 41.9, 42.0])
    store = store_in(tmp_path, clock=lambda: next(readings))
    store.save(state(1))  # takes 2 s, so 40 s have to pass for it to cost 5 %
    assert not store.is_due
    assert store.is_due
