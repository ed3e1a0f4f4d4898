"""Ranks that train one model: rank 0 alone talks to the agent, and all of them do the same at the same place."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from testing.free_ports import free_port
from testing.trainer_service import ROOT, StartScript, StartServer, TrainerServer, TrainingProcess
from tiercel.broker.client import load_spec
from tiercel.core.ranks import ranks_of
from tiercel.core.validation import validate_spec

SLOW = ("--epochs", "200", "--step-sleep-seconds", "0.01")

StartRanks = Callable[..., list[TrainingProcess]]


@pytest.fixture
def start_ranks(start_script: StartScript) -> StartRanks:
    """Start ``testing/scripts/ranks.py``, or another script, as two ranks."""

    def start(*arguments: str, script: Path = Path("ranks")) -> list[TrainingProcess]:
        port = str(free_port())
        return [
            start_script(
                str(script),
                *arguments,
                RANK=str(number),
                LOCAL_RANK=str(number),
                WORLD_SIZE="2",
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=port,
            )
            for number in range(2)
        ]

    return start


def outputs(ranks: list[TrainingProcess], code: int = 0) -> list[str]:
    """What each rank has printed, all of which must have ended with this code."""
    ended = [rank.wait() for rank in ranks]
    assert [each.returncode for each in ended] == [code] * len(ranks), ended
    return [each.output for each in ended]


def curve_of(server: TrainerServer) -> dict[int, float]:
    """Losses by epoch."""
    return {each.epoch: each.metrics["loss"] for each in server.recorded.reports}


def test_the_example_of_the_document_trains_and_hands_the_unwrapped_model_over(
    tmp_path: Path, start_server: StartServer, start_ranks: StartRanks
) -> None:
    _, _, section = (ROOT / "docs" / "training-scripts.md").read_text().partition("## Several accelerators\n")
    _, _, code = section.partition("```python\n")
    (tmp_path / "train.py").write_text(code.partition("```")[0])
    (tmp_path / "job.yaml").write_text(section.partition("```yaml\n")[2].partition("```")[0])
    spec = load_spec(tmp_path / "job.yaml")
    validate_spec(spec)
    assert ranks_of(spec) == 2
    server = start_server(tiers=(0.9,), keep_from=0.9)
    first, second = outputs(start_ranks(script=tmp_path / "train"))
    assert len(server.recorded.hellos) == 1, "the other rank has no connection of its own"
    assert [each.epoch for each in server.recorded.reports if not each.ended] == list(range(1, 9))
    assert server.recorded.export_done
    assert not any(done.error for done in server.recorded.export_done), server.recorded.export_done
    assert "handed over job-tier-1" in first
    assert second == "", "what it reports is printed by rank 0"


def test_a_run_that_is_suspended_goes_on_as_if_it_had_not_been(
    run_directory: Path, start_server: StartServer, start_ranks: StartRanks
) -> None:
    server = start_server()
    outputs(start_ranks("--epochs", "6"))
    undisturbed = curve_of(server)
    server.stop()
    for file in (run_directory / "checkpoints").iterdir():
        file.unlink()

    before = start_server(run_id="job-2")
    ranks = start_ranks("--epochs", "6", "--step-sleep-seconds", "0.02")
    before.wait_until(lambda recorded: len(recorded.reports) >= 3)
    for rank in ranks:
        rank.kill()
    before.stop()
    after = start_server(run_id="job-3")
    assert "going on after epoch" in outputs(start_ranks("--epochs", "6"))[0]
    assert sorted(undisturbed) == list(range(1, 7))
    # To the bit: dropout draws in each rank what it would have drawn.
    assert curve_of(before).items() <= undisturbed.items()
    assert curve_of(before) | curve_of(after) == undisturbed
    assert curve_of(after).items() <= undisturbed.items()


@pytest.mark.parametrize("finish", [False, True])
def test_all_ranks_end_at_the_same_step(start_server: StartServer, start_ranks: StartRanks, *, finish: bool) -> None:
    server = start_server(tiers=(0.7,), keep_from=0.7)
    ranks = start_ranks(*SLOW)
    server.wait_until(lambda recorded: len(recorded.reports) >= 3 and recorded.export_done)
    server.request_stop("a test", finish=finish)
    first, second = outputs(ranks)  # one that went on would wait for the other in a collective for ever
    assert f"{'finishing' if finish else 'stopping'}: a test" in first
    assert "rank 0 leaves, stopping: True" in first
    assert "rank 1 leaves, stopping: True" in second


@pytest.mark.parametrize("which", [[1], [0, 1]])
def test_a_signal_to_any_rank_ends_all_of_them(
    run_directory: Path, start_server: StartServer, start_ranks: StartRanks, which: list[int]
) -> None:
    server = start_server()
    ranks = start_ranks(*SLOW)
    server.wait_until(lambda recorded: len(recorded.reports) >= 2)
    for number in which:
        ranks[number].process.send_signal(signal.SIGTERM)
    assert "SIGTERM" in outputs(ranks)[0]
    import torch  # where one worker pays for it, and not where all of them collect the tests

    state = torch.load(run_directory / "checkpoints" / "latest.pt", weights_only=True)
    assert state["run"]["finished_epochs"] >= 2
    assert list(state["ranks"]) == [1], "with the random state of the other rank"


def test_a_rank_may_report_nothing_and_be_slow_and_one_process_may_go_on_alone(
    start_server: StartServer, start_ranks: StartRanks, start_script: StartScript
) -> None:
    server = start_server(tiers=(0.8,))
    outputs(start_ranks("--epochs", "1", "--others-report", "0", "--slow-rank", "1"))
    assert [each.epoch for each in server.recorded.reports] == [1]
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    (output,) = outputs([start_script("ranks", "--epochs", "2", **alone)])  # type: ignore[arg-type]  # an environment
    assert "going on after epoch 1" in output


def test_a_rank_that_has_lost_rank_0_does_not_go_on(start_server: StartServer, start_ranks: StartRanks) -> None:
    server = start_server()
    ranks = start_ranks(*SLOW)
    server.wait_until(lambda recorded: recorded.reports)
    ranks[0].kill()
    ended = ranks[1].wait()  # at a boundary, or in a collective: whichever it is at
    assert ended.returncode == 1
    assert "RanksError: rank 0 of this run is gone" in ended.output or "peer" in ended.output


def test_a_rank_that_does_not_come_is_named(start_server: StartServer, start_script: StartScript) -> None:
    start_server()
    rank = start_script("linear", RANK="0", WORLD_SIZE="2", TIERCEL_RANK_WAIT_SECONDS="0.5")
    ended = rank.wait()
    assert ended.returncode == 1
    assert "RanksError: rank 1 of this run has not called tiercel.trainer.connect() within" in ended.output
