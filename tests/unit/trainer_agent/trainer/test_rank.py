from __future__ import annotations

import pytest
from torch import nn

from tiercel.trainer_agent.trainer.pytorch.models import check_is_whole, without_wrapper
from tiercel.trainer_agent.trainer.rank import Rank


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, Rank()),
        ({"RANK": "0", "WORLD_SIZE": "1"}, Rank(0, 1, 0)),
        ({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}, Rank(3, 4, 1)),
        ({"RANK": "3", "WORLD_SIZE": "4"}, Rank(3, 4, 3)),
        ({"RANK": "3"}, Rank()),
        ({"RANK": "5", "WORLD_SIZE": "4"}, Rank()),
        ({"RANK": "first", "WORLD_SIZE": "some"}, Rank()),
    ],
)
def test_a_process_learns_which_rank_it_is_from_its_environment(environment: dict[str, str], rank: Rank) -> None:
    assert Rank.of_process(environment) == rank


@pytest.mark.parametrize(
    ("count", "accelerators", "own"),
    [
        (1, 0, [[]]),
        (1, 3, [[0, 1, 2]]),
        (2, 2, [[0], [1]]),
        (2, 4, [[0, 1], [2, 3]]),
        (2, 3, [[0], [1, 2]]),
        (2, 0, [[], []]),
    ],
)
def test_each_rank_has_its_own_accelerators(count: int, accelerators: int, own: list[list[int]]) -> None:
    assert [list(Rank(number, count, number).devices(accelerators)) for number in range(count)] == own


def test_a_model_whose_weights_are_spread_over_the_ranks_is_refused() -> None:
    class FullyShardedDataParallel(nn.Linear):
        pass

    with pytest.raises(TypeError, match=r"wrap it in torch\.nn\.parallel\.DistributedDataParallel"):
        check_is_whole(nn.Sequential(FullyShardedDataParallel(1, 1)))
    plain = nn.Sequential(nn.Linear(1, 1))
    check_is_whole(plain)
    assert without_wrapper(plain) is plain
