"""Tables in ``docs/results.md`` and plots of the simulated benchmarks, from their result files.

``python -m benchmarks.simulated_report``, at the end of ``make bench-simulated``. What the figures mean is written by
hand around the tables; nothing here is measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from benchmarks.plot import COLOURS, FAINT, STYLE
from benchmarks.principle.report import section as principle_section
from benchmarks.results import KEPT
from benchmarks.sections import table, write_section
from benchmarks.simulated_contest import section as contest_section
from benchmarks.simulated_served import tables_of
from benchmarks.simulated_workloads import FAIR_SLICES

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "results.md"
README = DOCUMENT.parents[1] / "README.md"
PLOTS = DOCUMENT.parent / "plots"

Json = Mapping[str, Any]

KINDS = {"alike": "alike", "mixed": "mixed", "heavy-tailed": "heavy-tailed", "hopeless": "with hopeless jobs"}
POLICIES = {
    FAIR_SLICES: "`fair`, 100 ms slices",
    "fifo": "`fifo`",
    "random-order": "`random-order`",
    "las": "`las`",
    "slaq": "`slaq`",
    "flowcon": "`flowcon`",
    "tradl": "`tradl`",
    "specon": "`specon`",
    "utility": "**`utility`**",
    "utility, nothing known": "`utility`, nothing known",
    "srpt": "`srpt`, earlier runs known",
    "srpt-oracle": "`srpt-oracle`, clairvoyant",
}
MEASURES = {
    "best_finish": "completion of the job that gains most",
    "best_tier_1": "time to tier 1 of the job that gains most",
    "makespan": "makespan",
}
MEANS = {"flowcon": "mean_finish", "tradl": "mean_tier_1", "specon": "mean_finish"}
"""The same for the mean over jobs, by paper."""

OURS = ("utility, nothing known", "utility")
KNOWING_RIVAL = "srpt, earlier runs known"
HEADLINES = (
    (
        "flowcon",
        "3 jobs, 40 s apart",
        "best_finish",
        "FlowCon: completion of the job that gains most, three jobs 40 s apart",
    ),
    ("tradl", "10 jobs in 200 s", "mean_tier_1", "TRADL: time to the first target, mean of ten jobs in 200 s"),
    ("specon", "50 jobs in 500 s, 4 nodes", "makespan", "SpeCon: makespan of 50 jobs on four nodes"),
)
"""What README shows of each paper: policy, schedule, measure, words."""
ENDPOINTS = "40 on 4, varied, burst"


def policies_section(figures: Json) -> str:
    """Time to tier 1, and what that costs others, under every policy; from ``simulated-policies``."""
    tables = figures["tables"]
    arms = {arm: words for arm, words in POLICIES.items() if arm in tables["alike"]}
    firsts = [
        [words, *(f"{tables[kind][arm]['time_to_tier_1']['mean']:.3f}" for kind in KINDS)]
        for arm, words in arms.items()
    ]
    costs = [[words, *(_cost(tables[kind][arm]) for kind in KINDS)] for arm, words in arms.items()]
    heads = list(KINDS.values())
    return "\n\n".join(
        (table(["time to tier 1", *heads], firsts), table(["worst finish of a job, makespan", *heads], costs))
    )


def _cost(row: Json) -> str:
    return f"{row['worst_finish']['mean']:.1f}, {row['makespan']['mean']:.2f}"


def papers_section(figures: Json) -> str:
    """Per cent below ``fair`` by each paper's own measure, and the mean over jobs; from ``simulated-papers``."""
    parts = []
    for policy, paper in _papers(figures):
        header = [
            "below `fair`",
            POLICIES[FAIR_SLICES],
            f"`{policy}`, defaults",
            "its best setting",
            "`fifo`",
            "`srpt`, earlier runs known",
            "`utility`, nothing known",
            "**`utility`**",
        ]
        shown = (FAIR_SLICES, f"{policy}, defaults", policy, "fifo", KNOWING_RIVAL, *OURS)
        rows = [
            [schedule, *(_gain(arms[arm], paper["measure"], policy) for arm in shown)]
            for schedule, arms in paper["schedules"].items()
        ]
        parts.append(
            f"`{policy}`: {MEASURES[paper['measure']]} (the paper: {paper['headline']}), and the mean over jobs"
        )
        parts.append(table(header, rows))
    return "\n\n".join(parts)


def _papers(figures: Json) -> list[tuple[str, Json]]:
    return [(name, paper) for name, paper in figures.items() if isinstance(paper, Mapping)]


def _gain(row: Json, measure: str, policy: str) -> str:
    low, high = row[measure]["interval"]
    mean = row[MEANS[policy]]["mean"]
    return f"{100 * row[measure]['mean']:.1f} % ({100 * low:.1f} … {100 * high:.1f}); {100 * mean:.1f} %"


def readme_section(papers: Json, endpoints: Json) -> str:
    """One experiment of each paper by its own measure; from ``simulated-papers`` and ``simulated-endpoints``."""
    rows = []
    for policy, schedule, measure, words in HEADLINES:
        arms = papers[policy]["schedules"][schedule]
        shown = (policy, "fifo", KNOWING_RIVAL, *OURS)
        rows.append([words, *(f"{100 * arms[arm][measure]['mean']:.1f} %" for arm in shown)])
    counts = endpoints["cases"][ENDPOINTS]
    fair, theirs, ours = (f"{counts[policy]['satisfied']['mean']:.1f}" for policy in ("fair", "dqoes", "utility"))
    rows.append([f"DQoES: endpoints at their delay objectives, of 40 (equal shares: {fair})", theirs, "", "", ours, ""])
    header = ["measure", "theirs", "`fifo`", "`srpt`, four earlier runs known", "`utility`, nothing known"]
    return table([*header, "`utility`, four earlier runs known"], rows)


def tuning_section(figures: Json) -> str:
    """Time to tier 1 with the defaults and with the setting that tuning found; from ``simulated-tuning``."""
    order = sorted(figures, key=lambda policy: float(figures[policy]["score_of_tuned"]), reverse=True)
    rows = [[POLICIES[policy], *(_tuned(figures[policy], kind) for kind in KINDS)] for policy in order]
    return table(["time to tier 1: default, tuned", *KINDS.values()], rows)


def _tuned(found: Json, kind: str) -> str:
    return f"{found['default'][kind]['mean']:.3f}, {found['tuned'][kind]['mean']:.3f}"


def endpoints_section(figures: Json) -> str:
    """Satisfied endpoints under each policy; from ``simulated-endpoints``."""
    policies = ("fair", "dqoes", "utility")
    rows = [
        [case, *(_satisfied(by_policy[policy]) for policy in policies)] for case, by_policy in figures["cases"].items()
    ]
    return table(["services on nodes, objectives, arrival", *(f"`{policy}`" for policy in policies)], rows)


def _satisfied(row: Json) -> str:
    return f"{row['satisfied']['median']:.1f} ({row['in_time']['median']:.1f})"


def served_section(figures: Json) -> str:
    """Served quality against ``fair``, and the part of requests in time, by load; from ``simulated-served``."""
    columns = tables_of(figures)
    arms = next(iter(columns.values()))
    rows = [[f"`{arm}`", *(_served(by_arm[arm]) for by_arm in columns.values())] for arm in arms]
    return table(["requests want, of the nodes' CPU", *columns], rows)


def _served(row: Json) -> str:
    return f"{row['served_quality']['mean']:.3f} ({row['in_objective']:.2f})"


def draw_papers(figures: Json, path: Path) -> None:
    """Bars: how far each paper's scheduler and ``utility`` are below ``fair`` by the paper's own measure."""
    papers = _papers(figures)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11, 3.2 * len(papers)), layout="constrained")
        panels = figure.subplots(len(papers), 1, squeeze=False)[:, 0]
        for panel, (policy, paper) in zip(panels, papers, strict=True):
            _draw_paper(panel, policy, paper)
        figure.savefig(path, dpi=120, facecolor="white")


def _draw_paper(panel: Axes, policy: str, paper: Json) -> None:
    arms = {f"{policy}, defaults": FAINT, policy: COLOURS[1], OURS[0]: COLOURS[4], OURS[1]: COLOURS[0]}
    names = {policy: f"{policy}, best setting", OURS[1]: "utility, earlier runs known"}
    width = 0.8 / len(arms)
    for place, (arm, colour) in enumerate(arms.items()):
        rows = [schedule[arm][paper["measure"]] for schedule in paper["schedules"].values()]
        means = [row["mean"] for row in rows]
        reach = [[row["mean"] - row["interval"][0] for row in rows], [row["interval"][1] - row["mean"] for row in rows]]
        at = [index + (place - (len(arms) - 1) / 2) * width for index in range(len(rows))]
        panel.bar(at, means, width, yerr=reach, color=colour, label=names.get(arm, arm), ecolor="#333333", capsize=2)
    panel.set_xticks(range(len(paper["schedules"])), list(paper["schedules"]))
    panel.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    panel.set_title(f"{policy}'s experiments: {MEASURES[paper['measure']]}, below fair")
    panel.legend(frameon=False, ncols=len(arms), loc="upper center", bbox_to_anchor=(0.5, -0.1))


def draw_classes(figures: Json, path: Path) -> None:
    """Services that are faster than, at and slower than their objectives, over time."""
    shown = {policy: figures["over_time"][policy] for policy in ("fair", "dqoes", "utility")}
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11, 6.5), layout="constrained")
        panels = figure.subplots(len(shown), 1, sharex=True, sharey=True)
        for panel, (policy, counts) in zip(panels, shown.items(), strict=True):
            _draw_counts(panel, counts)
            panel.set_title(policy)
            panel.set_ylabel("Services")
        panels[-1].set_xlabel("Seconds since the first services came")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
        figure.savefig(path, dpi=120, facecolor="white")


def _draw_counts(panel: Axes, counts: Sequence[Sequence[float]]) -> None:
    at, over, satisfied, under = zip(*counts, strict=True)
    panel.stackplot(
        at,
        satisfied,
        over,
        under,
        labels=["satisfied: within 10 % of the objective (S)", "faster than that (G)", "slower (B)"],
        colors=[COLOURS[2], COLOURS[4], COLOURS[5]],
    )
    panel.set_xlim(at[0], at[-1])


def main() -> None:
    """Read the results, write the tables, draw the plots."""
    policies, papers, tuning, endpoints, served, contest, principle = (
        json.loads((KEPT / f"simulated-{name}.json").read_text(encoding="utf-8"))["figures"]
        for name in ("policies", "papers", "tuning", "endpoints", "served", "contest", "principle")
    )
    write_section(DOCUMENT, "simulated-policies", policies_section(policies))
    write_section(DOCUMENT, "simulated-principle", principle_section(principle))
    write_section(DOCUMENT, "simulated-papers", papers_section(papers))
    write_section(README, "papers", readme_section(papers, endpoints))
    write_section(DOCUMENT, "simulated-tuning", tuning_section(tuning))
    write_section(DOCUMENT, "simulated-endpoints", endpoints_section(endpoints))
    write_section(DOCUMENT, "simulated-served", served_section(served))
    write_section(DOCUMENT, "simulated-contest", contest_section(contest))
    draw_papers(papers, PLOTS / "papers.png")
    draw_classes(endpoints, PLOTS / "endpoint-classes.png")
    print(f"Written into docs/{DOCUMENT.name} and docs/{PLOTS.name}")


if __name__ == "__main__":
    main()
