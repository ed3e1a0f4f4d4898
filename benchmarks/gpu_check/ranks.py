"""One model trained by two ranks, each on an accelerator of its own."""

from __future__ import annotations

from benchmarks.gpu_check.frame import Findings, Row, Setting
from benchmarks.gpu_check.processes import output_of

RANKS = 2
PAIR_SECONDS = 90.0


async def run(setting: Setting, findings: Findings) -> None:
    """They come to the same weights, and each has opened its own accelerator alone."""
    count = int(setting.facts.get("devices", 0))
    if setting.device == "cuda" and count < RANKS:
        findings.rows.append(Row("two ranks on two accelerators", note=f"needs {RANKS} accelerators; there is {count}"))
        return
    setting.tell("ranks: two of them train one model")
    log = setting.folder / "ranks.log"
    steps = "4" if setting.quick else "100"
    told = await output_of("rank_pair", setting.device, steps, seconds=PAIR_SECONDS, log=log, ranks=RANKS)
    findings.figures |= told
    ranks = told["ranks"]
    weights = len({each["weights"] for each in ranks})
    findings.add("different weights of two ranks that trained one model", weights, "", "== 1")
    if setting.device == "cuda":
        findings.add("accelerators that two ranks trained on", len({each["device"] for each in ranks}), "", "== 2")
    if all(each["opened"] is not None for each in ranks):
        opened = max(each["opened"] for each in ranks)
        findings.add("accelerators that one of them opened, by the driver", opened, "", "== 1")
    busy = ", ".join(f"{each['busy_seconds']:.2f} s" for each in ranks)
    findings.add("steps of two ranks", told["steps_per_second"], "steps/s", note=f"device time of each: {busy}")
