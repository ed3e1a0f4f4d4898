"""What has to hold under every attack, derived from the figures of the result file."""

from __future__ import annotations

from typing import Any

from benchmarks.results import Bar

Json = dict[str, Any]
BACK_SECONDS = 5.0
"""Within which all runs are back after the broker was killed."""
GROWTH_MIB = 64.0
"""Of the broker, while strangers flood it."""


def bars_of(figures: Json) -> list[Bar]:
    """Of the attacks that were made."""
    judges = {
        "reconnect": _reconnect,
        "script-flood": _script_flood,
        "anonymous-flood": _anonymous_flood,
        "full-disk": _full_disk,
    }
    return [bar for name, judge in judges.items() if name in figures for bar in judge(figures[name])]


def _reconnect(found: Json) -> list[Bar]:
    back = max(found["back_seconds"], default=None)
    return [
        Bar("reconnect: times that the broker was killed", found["kills"], ">= 10"),
        Bar("reconnect: runs that report ten times a second", found["runs"], ">= 20"),
        Bar("reconnect: longest until all were back", back, f"<= {BACK_SECONDS:g}", "s"),
        Bar("reconnect: reports that were lost", found["lost"], "== 0"),
        Bar("reconnect: reports that were counted twice", found["twice"], "== 0"),
        Bar(
            "reconnect: streams beyond one for each life of the broker",
            found["connections"],
            f"== {found['kills'] + 1}",
        ),
    ]


def _script_flood(found: Json) -> list[Bar]:
    return [
        Bar(f"script flood: {name.replace('_', ' ')}", found["mib"][name], f"<= {bound:g}", "MiB")
        for name, bound in found["bounds_mib"].items()
    ]


def _anonymous_flood(found: Json) -> list[Bar]:
    return [
        *(
            Bar(f"anonymous flood: tries of the {who} that were kept out", count, "== 0")
            for who, count in found["kept_out"].items()
        ),
        Bar("anonymous flood: growth of the broker", found["memory_growth_mib"], f"<= {GROWTH_MIB:g}", "MiB"),
    ]


def _full_disk(found: Json) -> list[Bar]:
    return [
        Bar("full disk: calls that were refused meanwhile", found["refused"], ">= 1"),
        Bar("full disk: streams", found["streams"], "== 1"),
        Bar("full disk: reports that were kept", found["reports_kept"], f"== {found['reports']}"),
        Bar("full disk: until it went on once there was room", found["went_on_after"], "<= 10", "s"),
    ]
