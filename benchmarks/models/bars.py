"""What has to hold of scripts of every framework, and of a model of 2.5 GB, and what the documentation says of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.models.frameworks import BY_HAND, FEW_LINES
from benchmarks.results import Bar
from benchmarks.sections import bars_table, table

Json = dict[str, Any]

_MOST_DIFFERENCE = 1e-3
_MOST_PART = 1.2
_GIB = 1024**3


def bars_of(figures: Json) -> list[Bar]:
    """Of the scripts."""
    scripts: list[Json] = figures["scripts"]
    few = [each["changed_lines"] for each in scripts if each["name"] not in BY_HAND]
    resumed = [each for each in scripts if each["runs"] == 2 and each["went_on"] and each["state"] == "completed"]
    whole = [each for each in scripts if each["tiers"] == each["delivered"] == 2]
    differences = [each["difference"] for each in scripts]
    known = None if None in differences or not differences else max(differences)
    return [
        Bar(
            "all but the ONNX file written by hand: lines that change, most", max(few, default=None), f"<= {FEW_LINES}"
        ),
        Bar("killed at the first checkpoint, and ended well after one more run", len(resumed), f"== {len(scripts)}"),
        Bar("delivered two tiers", len(whole), f"== {len(scripts)}"),
        Bar("answers beside the framework's own: largest difference", known, f"<= {_MOST_DIFFERENCE:g}"),
    ]


def bars_of_large(figures: Json) -> list[Bar]:
    """Of the large model."""
    return [
        Bar("the model, least", min(figures["model_bytes"]) / 1e9, ">= 2.5", "GB"),
        Bar("requests that failed while the second one was deployed", figures["failed"], "== 0"),
        Bar("versions that answered", len(figures["answered"]), "== 2"),
        Bar("peak memory of server and verifier over both versions' size", figures["part_of_both"], f"<= {_MOST_PART}"),
    ]


def section_of(figures: Json, bars: Iterable[Bar]) -> str:
    """Of the scripts."""
    rows = [
        (
            each["name"],
            str(each["changed_lines"]),
            str(each["runs"]),
            f"{each['delivered']} of {each['tiers']}",
            "not known" if each["difference"] is None else f"{each['difference']:.1e}",
        )
        for each in figures["scripts"]
    ]
    header = ("script", "lines that change", "runs", "tiers delivered", "largest difference of an answer")
    return f"{table(header, rows)}\n\n{bars_table('bar', bars)}"


def section_of_large(figures: Json, bars: Iterable[Bar]) -> str:
    """Of the large model."""
    rows = [(name, f"{size / _GIB:.2f}") for name, size in figures["peak_bytes"].items()]
    return f"{table(('process', 'peak memory, GiB'), rows)}\n\n{bars_table('bar', bars)}"
