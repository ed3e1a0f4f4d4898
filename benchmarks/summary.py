"""What a demo tells at its end, in words and tables that need no knowledge of Tiercel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table

from benchmarks.bars import shown_goal, shown_value
from benchmarks.results import Bar

Json = dict[str, Any]
NOTE = "Exported: the metric of the exported model; Seen: the same over the answers that the application got."
BAR_COLUMNS: dict[str, JustifyMethod] = {"Bar": "left", "Value": "right", "Goal": "right", "Holds": "left"}


def print_summary(console: Console, report: Json, bars: list[Bar], files: dict[str, Path]) -> None:
    """Print what happened."""
    console.print()
    for sentence in sentences(report):
        console.print(sentence, highlight=False, soft_wrap=True)
    console.print()
    console.print(_jobs_table(report))
    console.print(NOTE, style="dim", highlight=False, soft_wrap=True)
    console.print()
    console.print(_bars_table(bars))
    for what, path in files.items():
        console.print(f"{what:<20} {path}", markup=False, highlight=False, soft_wrap=True)


def sentences(report: Json) -> list[str]:
    """The story."""
    jobs, requests = report["jobs"], report["requests"]
    tenants = sorted({job["tenant"] for job in jobs})
    tiers = [tier for job in jobs for tier in job["tiers"]]
    delivered = sum(tier["delivered_s"] is not None for tier in tiers)
    story = []
    story.append(
        f"{len(jobs)} models of {len(tenants)} tenants ({', '.join(tenants)}) trained side by side for "
        f"{report['work_seconds']:.0f} s under the policy '{report['policy']}'."
    )
    story.append(
        f"{delivered} of {len(tiers)} tiers were delivered: each time a model reached one, it was exported, verified "
        "and put in place of the version before, while it went on training."
    )
    if requests["total"]:
        story.append(
            f"Meanwhile an application sent {requests['total']} requests ({requests['per_second']:.0f} a second); "
            f"{requests['failed']} failed. Half were answered within {_ms(requests['p50_ms'])}, 99 % within "
            f"{_ms(requests['p99_ms'])}, and near a swap 99 % within {_ms(requests['swap_window_p99_ms'])}."
        )
    if report["swap_seconds_median"] is not None:
        story.append(
            f"From the report that reached a tier to the first answer from its version it took "
            f"{report['swap_seconds_median']:.1f} s (median)."
        )
    story.append(
        f"Shares of the CPU were moved {report['reallocations']} times; "
        f"{report['mqtt_messages']} messages told about it over MQTT."
    )
    return story


def _jobs_table(report: Json) -> Table:
    title = "Each tier of each job; times are seconds since it was submitted"
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("Job", no_wrap=True)
    for name in ("Tier", "Reached", "Live", "Version", "Exported", "Seen", "Answers"):
        table.add_column(name, justify="right", no_wrap=True)
    for job in report["jobs"]:
        # Two lines at least: a job has two tiers or more here.
        about = [job["name"], f"[dim]{job['tenant']}, {job['metric_name']}[/dim]"]
        for number, tier in enumerate(job["tiers"]):
            table.add_row(about[number] if number < len(about) else "", *_tier_cells(job, tier))
        table.add_section()
    return table


def _tier_cells(job: Json, tier: Json) -> tuple[str, ...]:
    sign = "≥" if job["direction"] == "max" else "≤"
    return (
        f"{sign} {tier['target']:g}",
        _seconds(tier["reached_s"]),
        _seconds(tier["delivered_s"]),
        "-" if tier["version"] is None else str(tier["version"]),
        _metric(tier["metric"]),
        _metric(tier["application_metric"]),
        str(tier["application_answers"]),
    )


def _bars_table(bars: list[Bar]) -> Table:
    title = "What this run had to show"
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name, justify in BAR_COLUMNS.items():
        table.add_column(name, justify=justify)
    for bar in bars:
        verdict = "[green]yes[/green]" if bar.holds else "[bold red]no[/bold red]"
        table.add_row(bar.name, shown_value(bar), shown_goal(bar), verdict)
    return table


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _metric(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms"
