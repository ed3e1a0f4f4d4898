"""Who is compared, and ``utility`` without each of its rules."""

from __future__ import annotations

import math

from benchmarks.simulated_policies import Arm
from tiercel.broker.scheduling.forecast.work import Forecast

ARMS = (
    Arm("fair", "fair", {}, slices=False),
    Arm("fifo", "fifo", {}),
    Arm("las", "las", {}),
    Arm("slaq", "slaq", {}),
    Arm("flowcon", "flowcon", {}),
    Arm("tradl", "tradl", {}),
    Arm("tradl, earlier runs known", "tradl", {"history": True}, history=True),
    Arm("specon", "specon", {}),
    Arm("srpt", "srpt", {}, history=True),
    Arm("srpt-oracle", "srpt-oracle", {}),
    Arm("utility", "utility", {}, history=True),
    Arm("utility, nothing known", "utility", {}),
)
"""Every policy; those that can make something of earlier runs know them."""

ABLATIONS = (
    *(
        Arm(f"utility, {name}", "utility", options, history=True)
        for name, options in (
            ("no guard", {"guard_ratio": 0.0}),
            ("being over counts next to nothing", {"finishing": 1e-9}),
            ("later tiers count a tenth each", {"later_tiers": 0.1}),
            ("floor of a tenth", {"floor": 0.1}),
            ("who would need a tenth longer goes first", {"guard_ratio": 1.1}),
            ("nobody goes first before it would need half as long again", {"guard_ratio": 1.5}),
            ("no place kept for handing over", {"handing_over_seconds": -1.0}),
        )
    ),
    Arm(
        "utility, equal shares looked at every 5 s only",
        "utility",
        {},
        history=True,
        constants={"utility.fairness._FEW": 1.0},
    ),
    Arm(
        "utility, equal shares at no price and half as long again",
        "utility",
        {"guard_ratio": 1.5},
        history=True,
        constants={"equal_shares._SHARING_COSTS": 0.0},
    ),
    Arm(
        "utility, equal shares looked at every 30 s, or when jobs come or go",
        "utility",
        {},
        history=True,
        constants={"utility.fairness._REVIEW_SECONDS": 30.0},
    ),
    Arm(
        "utility, as long again while no job has a tier, nothing known",
        "utility",
        {},
        constants={"utility.record._FIRST_GUESS": Forecast((), (), 0.0)},
    ),
    Arm(
        "utility, who has no tier yet counts for what it had, nothing known",
        "utility",
        {},
        constants={"utility.record._WITH_AS_LONG_AGAIN": 1.0},
    ),
    Arm("utility, no guard, nothing known", "utility", {"guard_ratio": 0.0}),
    Arm(
        "utility, whoever reports may be out of reach, nothing known",
        "utility",
        {},
        constants={"forecast.work._LEVELS_OFF": math.inf},
    ),
)
"""``utility`` with one rule off, or with the simplest in its place."""
