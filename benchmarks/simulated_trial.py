"""The live trial, simulated from its published figures alone: ``python -m benchmarks.simulated_trial``.

Seven programs trained on two cores under several policies, live. Here the same programs are made up from
the CPU seconds that each needed to its two tiers alone, its start-up and the co-location penalty, all measured apart
from the runs, and the mean times to tier 1 of each schedule and policy are compared. Nothing is fitted.
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import replace

from benchmarks.bars import keep_result
from benchmarks.results import Bar, Json
from tiercel.broker.simulation import Result, simulate
from tiercel.broker.simulation.arrivals import AllAtOnce, Arrivals, Fixed, Uniform
from tiercel.broker.simulation.presets import measured_kinds, training

SEEDS = range(20)
JOBS = 7

SCHEDULES: dict[str, Arrivals] = {"all at once": AllAtOnce(), "every 4 s": Fixed(4.0), "within 30 s": Uniform(30.0)}

LIVE_TIER_1_SECONDS = {
    "fair": (22.4, 11.6, 11.8),
    "tradl": (17.0, 7.3, 7.2),
    "fifo": (13.9, 6.2, 6.5),
    "srpt-oracle": (10.8, 5.9, 6.5),
}
"""Means over jobs and blocks, by schedule, of the trial; its policies were prototypes of those here."""


def simulated(policy: str, arrivals: Arrivals) -> list[Result]:
    """The trial under a policy, once for each seed; its programs exported nothing."""
    kinds = measured_kinds(trains_on=True)
    silent = [replace(kind, first_export_cpu_seconds=0.0, export_cpu_seconds=0.0) for kind in kinds]
    planned = training(silent, JOBS, 1, arrivals=arrivals, name="trial")
    planned = replace(planned, machines=replace(planned.machines, delivery_seconds=0.0))
    return [simulate(planned, policy, seed) for seed in SEEDS]


def main() -> None:
    """Simulate, compare, and write ``simulated-trial.json``."""
    rows = []
    for policy, live in LIVE_TIER_1_SECONDS.items():
        for (schedule, arrivals), live_seconds in zip(SCHEDULES.items(), live, strict=True):
            means = [result.mean_time_to_tier(1) for result in simulated(policy, arrivals)]
            seconds = statistics.fmean(means)
            error = seconds / live_seconds - 1
            rows.append(
                {
                    "policy": policy,
                    "schedule": schedule,
                    "live_seconds": live_seconds,
                    "simulated_seconds": round(seconds, 2),
                    "deviation_over_seeds": round(statistics.stdev(means), 2),
                    "error": round(error, 4),
                }
            )
            print(f"{policy:12s} {schedule:12s} live {live_seconds:5.1f} s  simulated {seconds:5.1f} s  {error:+6.1%}")
    sizes = sorted(abs(float(str(row["error"]))) for row in rows)
    median = statistics.median(sizes)
    print(f"median error {median:.1%}, largest {sizes[-1]:.1%}")
    figures = {"means": rows, "median_error": round(median, 4), "largest_error": sizes[-1]}
    command = "python -m benchmarks.simulated_trial"
    keep_result("simulated-trial", command=command, figures=figures, keep="--keep" in sys.argv[1:])


def bars_of(figures: Json) -> list[Bar]:
    """How far the simulator may be from what ran."""
    median = statistics.median(abs(row["error"]) for row in figures["means"])
    return [Bar("median error of mean times to tier 1, simulated against live", round(median, 4), "<= 0.10")]


if __name__ == "__main__":
    main()
