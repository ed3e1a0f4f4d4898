from __future__ import annotations

from pathlib import Path

import pytest

from tiercel.broker.simulation import Scenario, equal_nodes, simulate
from tiercel.broker.simulation.trace import TraceError, read_trace

HEADER = "submit_seconds,work_cpu_seconds,tiers,cpu_cores,memory_gib,startup_cpu_seconds,name,family\n"
GOOD = "0,10,0.9,1,1,1,a,power\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "jobs.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_jobs_of_a_trace(tmp_path: Path) -> None:
    text = HEADER + "5,40,0.8;0.9,2,4,1.5,big,hyperbolic\n0,20,0.9,,,,,\n"
    first, second = read_trace(write(tmp_path, text)).jobs
    assert (first.arrives_at, second.arrives_at) == (0.0, 5.0)
    assert (first.workload.resources.cpu_cores, first.workload.startup_cpu_seconds) == (1.0, 0.0)
    assert (second.name, second.workload.startup_cpu_seconds) == ("big", 1.5)
    assert (second.workload.resources.cpu_cores, second.workload.resources.memory_bytes) == (2.0, 4 * 1024**3)
    assert [tier.target for tier in second.workload.tiers] == [0.8, 0.9]


def test_the_last_tier_takes_the_work_that_the_trace_says(tmp_path: Path) -> None:
    jobs = read_trace(write(tmp_path, "submit_seconds,work_cpu_seconds,tiers\n0,20,0.9\n0,50,0.5;0.95\n"))
    result = simulate(Scenario(nodes=equal_nodes(1, 2.0), jobs=jobs), "fair")
    works = [job.tiers[-1].true_work for job in result.jobs]
    # The reports are a twentieth apart; rounding may put the target just behind one of them.
    assert works[0] is not None
    assert 20.0 <= works[0] <= 21.001
    assert works[1] is not None
    assert 50.0 <= works[1] <= 52.501


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("submit_seconds,tiers\n0,0.9\n", "the header lacks the column work_cpu_seconds"),
        (HEADER.replace("family", "shape"), "the column 'shape' is unknown"),
        (
            HEADER + "0,10,0.9,1,1,1,a,power\n-1,10,0.9,1,1,1,a,power\n",
            "row 3, column submit_seconds: '-1' is not a number",
        ),
        (HEADER + "0,ten,0.9,1,1,1,a,power\n", "row 2, column work_cpu_seconds: 'ten' is not a number"),
        (HEADER + "0,nan,0.9,1,1,1,a,power\n", "row 2, column work_cpu_seconds: 'nan' is not a positive number"),
        (HEADER + "0,10,0.9;0.8,1,1,1,a,power\n", "row 2, column tiers: '0.9;0.8' are not rising targets"),
        (HEADER + "0,10,0.9;,1,1,1,a,power\n", "row 2, column tiers: '0.9;' is not a number"),
        (HEADER + "0,10,1.5,1,1,1,a,power\n", "row 2, column tiers: '1.5' are not rising targets between 0 and 1"),
        (HEADER + "0,10,0.9,0,1,1,a,power\n", "row 2, column cpu_cores: '0' is not a positive number"),
        (HEADER + "0,10,0.9,1,1,1,a,line\n", "row 2, column family: 'line' is none of exponential"),
        (HEADER + "0,10,0.9,1,1,1,a,power,9\n", "row 2: it has more cells than the header has columns"),
        (HEADER + "0\n", "row 2, column tiers: '' is not a number"),
    ],
)
def test_what_is_wrong_is_said_with_row_and_column(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(TraceError) as caught:
        read_trace(write(tmp_path, text))
    assert words in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"jobs\.csv cannot be read"):
        read_trace(tmp_path / "jobs.csv")
