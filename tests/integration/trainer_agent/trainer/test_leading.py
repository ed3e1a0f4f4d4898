"""What rank 0 and another one say to each other, over their real socket."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tiercel.trainer_agent.errors import RanksError
from tiercel.trainer_agent.trainer import leading
from tiercel.trainer_agent.trainer.accelerator_memory import CudaMemory
from tiercel.trainer_agent.trainer.accelerators import Accelerators
from tiercel.trainer_agent.trainer.following import LeaderLink
from tiercel.trainer_agent.trainer.leading import Leader
from tiercel.trainer_agent.trainer.rank import Rank
from tiercel.trainer_agent.trainer.rank_link import (
    END_OF_EPOCH,
    WAIT_VARIABLE,
    Decision,
    Kind,
    Place,
    RankLink,
    Use,
    address_of,
    pack_hello,
)
from tiercel.v1 import common_pb2, trainer_pb2

GO_ON, FINISH, STOP = Decision
WELCOME = trainer_pb2.TrainerWelcome(run_id="job-1", max_epochs=7)
FIRST, SECOND = Rank(0, 2, 0), Rank(1, 2, 1)
STEP, LATER, END = Place(1, 5), Place(1, 7), Place(1, END_OF_EPOCH)


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("a-secret-of-this-run\n")
    return tmp_path


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


@pytest.fixture
def ranks(run_directory: Path, pool: ThreadPoolExecutor) -> Iterator[tuple[Leader, LeaderLink]]:
    """Rank 0 and rank 1, which have both begun."""
    leader = Leader(run_directory, FIRST)
    coming = pool.submit(LeaderLink, run_directory, SECOND)
    leader.gather(WELCOME)
    link = coming.result(10)
    assert link.welcome() == WELCOME
    link.ready()
    leader.wait_ready()
    yield leader, link
    link.close()
    leader.close()


def test_a_stop_holds_from_its_place_on_wherever_ranks_have_boundaries(
    ranks: tuple[Leader, LeaderLink], pool: ThreadPoolExecutor
) -> None:
    leader, link = ranks
    leader.agree(STEP, GO_ON, saves=False)
    assert link.agree(Place(1, 4)) is GO_ON
    assert link.agree(STEP) is GO_ON
    ahead = pool.submit(link.agree, END)  # its part of the epoch is shorter
    leader.agree(Place(1, 6), GO_ON, saves=False)
    assert not ahead.done()
    leader.agree(LATER, FINISH, saves=False)
    assert ahead.result(10) is FINISH
    assert link.agree(Place(2, 0)) is FINISH, "for good"
    assert link.decision is FINISH


def test_a_rank_with_more_steps_than_rank_0_does_them(ranks: tuple[Leader, LeaderLink]) -> None:
    leader, link = ranks
    leader.agree(END, GO_ON, saves=False)
    assert [link.agree(Place(1, step)) for step in range(1, 9)] == [GO_ON] * 8


def test_a_checkpoint_has_the_random_state_of_that_very_place(
    ranks: tuple[Leader, LeaderLink], pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, link = ranks
    saved = pool.submit(leader.agree, STEP, GO_ON, saves=True)
    assert link.agree(STEP) is GO_ON
    (state,) = saved.result(10).values()
    import torch  # where one worker pays for it, and not where all of them collect the tests

    assert len(state) > torch.get_rng_state().numel()
    monkeypatch.setattr(leading, "STATE_SECONDS", 0.05)
    assert leader.agree(LATER, GO_ON, saves=True) == {}, "it is not there in time"
    assert link.agree(LATER) is GO_ON
    assert leader.agree(END, GO_ON, saves=True) == {}, "what came late is of another place"


def test_what_another_rank_uses_counts_where_it_is_more(
    ranks: tuple[Leader, LeaderLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, link = ranks
    monkeypatch.setattr(CudaMemory, "count", 0)
    shares = [common_pb2.AcceleratorShare(id=f"GPU-{number}", fraction=0.5) for number in range(2)]
    accelerators = Accelerators.of(shares, FIRST, leader.followers)
    accelerators.limit(0.5)
    assert accelerators.delay_seconds() == 0.0
    link.tell(Use(cpu_seconds=3.0, busy_seconds=40.0, spans=4, memory_bytes=7), terminated=True)
    (follower,) = leader.followers
    assert follower.hear(10.0)
    assert follower.hear(10.0)
    leader.listen()
    use = accelerators.use(last=True, held_elsewhere=follower.use.memory_bytes)
    assert use is not None
    assert (use.accelerator_seconds, use.memory_bytes, follower.use.cpu_seconds) == (40.0, 7, 3.0)
    assert accelerators.delay_seconds() > 70.0, "rank 0 rests for the one that works most, and all with it"
    assert leader.was_terminated


def test_only_the_ranks_of_the_run_are_let_in(run_directory: Path, pool: ThreadPoolExecutor) -> None:
    leader = Leader(run_directory, FIRST)
    address, secret = address_of(run_directory)
    with contextlib.ExitStack() as stack:
        gathering = pool.submit(leader.gather, WELCOME)
        for kind, hello in (
            (Kind.HELLO, pack_hello(1, b"x" * len(secret))),
            (Kind.HELLO, pack_hello(2, secret)),
            (Kind.HELLO, b""),
            (Kind.USE, pack_hello(1, secret)),
        ):
            intruder = stack.enter_context(socket.socket(socket.AF_UNIX))
            intruder.connect(address)
            link = RankLink(intruder)
            link.send(kind, hello, seconds=5.0)
            with pytest.raises(ConnectionResetError):
                link.receive(10.0)
        raw = stack.enter_context(socket.socket(socket.AF_UNIX))
        raw.connect(address)
        raw.sendall(b"\xff" * 100)  # a message of 4 GiB
        assert not gathering.done()
        link_of_rank = LeaderLink(run_directory, SECOND)
        gathering.result(10)
        link_of_rank.close()
    leader.close()


def test_a_rank_that_is_gone_holds_nobody_up(ranks: tuple[Leader, LeaderLink]) -> None:
    leader, link = ranks
    link.close()
    leader.listen()
    assert leader.agree(STEP, GO_ON, saves=True) == {}
    assert leader.followers[0].is_gone


def test_a_rank_that_has_lost_rank_0_says_so(ranks: tuple[Leader, LeaderLink]) -> None:
    leader, link = ranks
    leader.close()
    with pytest.raises(RanksError, match="rank 0 of this run is gone"):
        link.agree(STEP)


def test_ranks_wait_for_one_another_for_so_long(
    run_directory: Path, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WAIT_VARIABLE, "0.1")
    with pytest.raises(RanksError, match="rank 0 of this run is not there"):
        LeaderLink(run_directory, SECOND)
    leader = Leader(run_directory, FIRST)
    with pytest.raises(RanksError, match=r"rank 1 of this run has not called tiercel\.trainer\.connect\(\) within"):
        leader.gather(WELCOME)
    leader.close()

    again = Leader(run_directory, FIRST)
    with pytest.raises(RanksError, match="rank 0 of this run is there already"):
        Leader(run_directory, FIRST)
    coming = pool.submit(LeaderLink, run_directory, SECOND)
    again.gather(WELCOME)
    link = coming.result(10)
    with pytest.raises(RanksError, match="rank 1 of this run did not begin"):
        again.wait_ready()
    link.welcome()
    with pytest.raises(RanksError, match="rank 0 of this run did not get as far as this rank within"):
        link.agree(STEP)
    link.close()
    again.close()
