"""Who is compared, and ``utility`` without each of its rules."""

from __future__ import annotations

from benchmarks.simulated_policies import Arm

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
        Arm(f"utility, {name}{', nothing known' if not known else ''}", "utility", options, history=known)
        for known in (True, False)
        for name, options in (
            ("being over is worth next to nothing", {"finishing": 1e-9}),
            ("later tiers count alike", {"later_tiers": 1.0}),
            ("floor of a tenth", {"floor": 0.1}),
            ("no margin before a job is late", {"guard_margin": 0.0}),
            ("no guard", {"guard_ratio": 0.0}),
            ("no migrations", {"migrate": False}),
            ("migrations whenever they gain", {"migration_gain": 1.0, "cooldown_seconds": 0.0, "max_migrations": 0}),
            ("reviewed each second", {"review_seconds": 1.0}),
        )
    ),
)
"""``utility`` with one rule off, or with the simplest in its place."""
