"""The section of ``docs/results.md`` that the live experiments write: between markers, made of the result file."""

from __future__ import annotations

from typing import Any

from benchmarks.results import Bar
from benchmarks.scheduling.analysis import STANDSTILL_SECONDS
from benchmarks.scheduling.schedules import SCHEDULES
from benchmarks.sections import bars_table, table

Json = dict[str, Any]
SECTION = "scheduling-live"
"""Its name in ``docs/results.md``."""
MEASURES = ("tier 1", "tier 2", "finish", "makespan")


def make_section(figures: Json, bars: list[Bar], *, command: str, machine: Json, plots: list[str]) -> str:
    """The section's text."""
    schedules = dict.fromkeys(block.rpartition("-")[0] for block in figures["blocks"])
    about = (
        f"`{command}`; {figures['runs']} runs of the whole product with real training processes on "
        f"{machine['cores']} cores ({', '.join(figures['processors'])}, Linux {machine['kernel']}), at "
        f"{', '.join(figures['commits'])}. Every arm met the same jobs at the "
        "same times; their order within a block was drawn at random. "
        "All arms but `fair`, and those that are named for their slices, give training 100 ms time slices."
    )
    head = [
        "## Schedulers, live",
        "",
        about,
        "",
        *(f"* `{name}`: {SCHEDULES[name].about}" for name in schedules if name in SCHEDULES),
        "",
    ]
    gains, moving = figures["gains"], figures["gains_two_nodes"]
    parts = [head, _bars(bars)]
    parts += [_gains(gains, baseline, "") for baseline in ("fair", "fair-slices", "fifo")]
    parts += [_gains(moving, baseline, ", on two nodes") for baseline in ("fair", "specon")]
    parts += [_arms(figures), _served(figures), _fidelity(figures), _what_if(figures), _left_out(figures)]
    parts.append([f"![{name}]({name})" for name in plots])
    return "\n".join("\n".join(part) + "\n" for part in parts if part)


def _bars(bars: list[Bar]) -> list[str]:
    return ["### Bars", "", bars_table("measured", bars)]


def _gains(all_gains: Json, baseline: str, where: str) -> list[str]:
    gains = all_gains.get(baseline, {})
    rows = [
        (arm, str(found["tier 1"]["blocks"]), *(_gain(found[name]) for name in MEASURES))
        for arm, found in gains.items()
        if found["tier 1"] is not None
    ]
    if not rows:
        return []
    return [
        f"### Below `{baseline}`{where}",
        "",
        "Mean over blocks of 1 - policy / baseline of a run's mean, with its 95 % bootstrap interval; more is better.",
        "",
        table(("policy", "blocks", *MEASURES), rows),
    ]


def _gain(found: Json | None) -> str:
    if found is None:
        return "-"
    interval = "" if found["low"] is None else f" ({100 * found['low']:.1f} … {100 * found['high']:.1f})"
    return f"{100 * found['mean']:.1f} %{interval}"


def _arms(figures: Json) -> list[str]:
    rows = []
    for arm, found in figures["arms"].items():
        if not found["runs"]:
            continue
        seconds = found["seconds"]
        cells = [*(_number(seconds[name], 1) for name in MEASURES), _number(found["worst_tier_1"], 2)]
        cells += [_number(found[name], 2) for name in ("best_finish", "worst_finish", "cpu_against_alone")]
        rows.append((arm, str(found["runs"]), *cells, _number(found["controller_cores"], 3)))
    columns = [
        *(f"{name}, s" for name in MEASURES),
        "worst tier 1",
        "best finish",
        "worst finish",
        "CPU vs alone",
        "controller, cores",
    ]
    note = (
        "Seconds are means over runs of the mean over jobs, from a job's submission. Policies that ran in other blocks "
        "do not compare here; the tables above pair them. Best and worst: of any job, against itself under `fair`."
    )
    return [
        "### Each policy",
        "",
        note,
        "",
        table(("policy", "runs", *columns), rows),
    ]


def _served(figures: Json) -> list[str]:
    served = figures["served"]
    if not served["quality"]:
        return []
    best_first = sorted(served["quality"].items(), key=lambda item: -item[1])
    above = served["above"]
    rows = [
        (arm, f"{quality:.4f}", *_in_time(served["in_time"][arm]), *(_gain(gains.get(arm)) for gains in above.values()))
        for arm, quality in best_first
    ]
    note = (
        f"{served['requests']} requests in all, {served['failed']} failed. Accuracy of the answers that came within "
        "50 ms, as a mean over time and endpoints; an endpoint without a version counts 0. In time: the part of all "
        "seconds of endpoints with a version in which they answered within 50 ms in the mean. Standstills: runs with "
        f"{STANDSTILL_SECONDS} such seconds and more in a row of no endpoint, of all runs. "
        "How much more ours have: mean over blocks, with its 95 % bootstrap interval."
    )
    return [
        "### Served quality",
        "",
        note,
        "",
        table(("policy", "quality", "in time", "standstills", *(f"`{ours}` above it" for ours in above)), rows),
    ]


def _in_time(row: Json) -> tuple[str, str]:
    return f"{row['mean']:.3f}", f"{row['standstills']} of {row['runs']}"


def _fidelity(figures: Json) -> list[str]:
    found = figures["fidelity"]
    if not found["all"]["replayed"]["runs"]:
        why = f"All {found['left_out']} runs are left out: not complete, or others used more than 5 % of the machine."
        return ["### The simulator against these runs", "", why] if found["left_out"] else []
    rows = [
        (arm, str(each["replayed"]["runs"]), _error(each["replayed"]), _error(each["foretold"]))
        for arm, each in {**found["by_arm"], "all": found["all"]}.items()
    ]
    note = (
        "A job's time to tier 1, simulated against live: median of the error's size, its 90th percentile, and the "
        "median of the error itself. *Replayed* starts from what each job's CPU seconds bought in that very run and "
        "what else used the machine; *foretold* from recordings of each kind alone and nothing of the run, so that it "
        f"has the machine's own changes of speed in it. {found['left_out']} runs are left out: not complete, or other "
        "programs used more than 5 % of the machine."
    )
    found_table = table(("policy", "runs", "replayed", "foretold"), rows)
    return ["### The simulator against these runs", "", note, "", found_table]


def _what_if(figures: Json) -> list[str]:
    found = figures.get("what_if", {})
    if not found:
        return []
    rows = [
        (
            arm,
            *(str(each[way]["predictions"]) for way in ("drawn", "alone")),
            *(_part(each[way]["median_error"]) for way in ("drawn", "learnt", "alone")),
            *(_part(each["learnt"].get(name)) for name in ("bias", "in_band")),
        )
        for arm, each in found.items()
    ]
    note = (
        "What brokers predicted of their own accord of when tiers come, as things were, and what came. The error is "
        "(predicted - came) / came. *Corrected*: by the errors of the blocks before, as a broker does that lives on; "
        "*nobody later*: as drawn, of predictions before whose tiers no other job was submitted. Where an arm knows no "
        "earlier runs, little is predicted: another job of the kind has to be through."
    )
    errors = ("median error, as drawn", "corrected", "nobody later")
    head = ("policy", "predictions", "of these nobody later", *errors, "bias, corrected", "in band, corrected")
    return ["### What-ifs against these runs", "", note, "", table(head, rows)]


def _part(value: float | None) -> str:
    return "-" if value is None else f"{100.0 * value:.0f} %"


def _error(found: Json) -> str:
    median, p90, bias = (found[name] for name in ("median_percent", "p90_percent", "bias_percent"))
    return f"{_number(median, 1)} %, {_number(p90, 1)} %, {'' if bias is None else f'{bias:+.1f} %'}"


def _left_out(figures: Json) -> list[str]:
    lines = [f"* `{arm}` did not run: {why}" for arm, why in figures["missing_arms"].items()]
    lines += [f"* not complete, and left out of every comparison: {run}" for run in figures["incomplete_runs"]]
    return ["### Left out", "", *lines] if lines else []


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
