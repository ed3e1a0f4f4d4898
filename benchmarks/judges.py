"""Who derives the bars of which result file from its figures."""

from __future__ import annotations

JUDGES = {
    "cluster": "benchmarks.cluster.bars:bars_of",
    "dashboard": "benchmarks.dashboard_frames:bars_of",
    "decision-cost": "benchmarks.decision_cost:bars_of",
    "demo": "benchmarks.report:build_bars",
    "faults": "benchmarks.faults.bars:bars_of",
    "fuzz": "benchmarks.fuzz.commands:bars_of",
    "gpu-check": "benchmarks.gpu_check.frame:bars_of",
    "qoe": "benchmarks.qoe.bars:bars_of",
    "scheduling-containers": "benchmarks.scheduling.bars:bars_of",
    "scheduling-live": "benchmarks.scheduling.bars:bars_of",
    "scheduling-quick": "benchmarks.scheduling.bars:sanity_bars",
    "serving": "benchmarks.serving.figures:bars_of",
    "serving-colocation": "benchmarks.serving.colocation:bars_of",
    "serving-overload": "benchmarks.serving.overload:bars_of",
    "serving-part": "benchmarks.serving.figures:bars_of",
    "serving-quick": "benchmarks.serving.figures:sanity_bars",
    "serving-resnet": "benchmarks.serving.raw_limit:bars_of",
    "serving-smoke": "benchmarks.serving_smoke:bars_of",
    "serving-swaps": "benchmarks.serving.swaps:bars_of",
    "simulated-accelerators": "benchmarks.simulated_accelerators:bars_of",
    "simulated-endpoints": "benchmarks.simulated_endpoints:bars_of",
    "simulated-papers": "benchmarks.simulated_papers:bars_of",
    "simulated-policies": "benchmarks.simulated_policies:bars_of",
    "simulated-principle": "benchmarks.principle.tables:bars_of",
    "simulated-scale": "benchmarks.simulated_scale:bars_of",
    "simulated-served": "benchmarks.simulated_served:bars_of",
    "simulated-trial": "benchmarks.simulated_trial:bars_of",
    "simulated-tuning": "benchmarks.simulated_tuning:bars_of",
    "starts": "benchmarks.starts.bars:bars_of",
    "starts-live": "benchmarks.starts.live:bars_of",
    "keys": "benchmarks.keys:bars_of",
    "tls": "benchmarks.tls.bars:bars_of",
}
"""By name of the result: ``module:function`` of its judge, which takes the figures as JSON and returns bars."""
