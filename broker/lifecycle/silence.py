"""For how long a run has been silent, and when that means that it hangs.

Only the time counts that it would have taken at full speed. A run that waits at a floor of its node reports seldom, and
that is its scheduler's doing: at 1 % of its speed, an epoch of ten seconds takes a quarter of an hour. One that hangs
there is found out when its turn comes, and until then takes nothing from anybody.

All times here are those of the clock that counts only while the broker is alive: nobody has been silent while nobody
listened.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from tiercel.core.runs import Silence

if TYPE_CHECKING:
    from tiercel.core.runs import Run
    from tiercel.core.shares import Share


def with_share(run: Run, share: Share, alive: float) -> Run:
    """The run with what it may use from now on; the silence until now counts by what it could use until now."""
    if run.silence is None:
        return replace(run, share=share)
    uncounted = alive - run.silence.since - silent_seconds(run, alive)
    return replace(run, share=share, silence=Silence(run.silence.since, alive, uncounted))


def heard(run: Run, alive: float) -> Run:
    """The run, its silence over."""
    return replace(run, heard=True, silence=no_silence(alive))


def no_silence(alive: float) -> Silence:
    """Of a run that is heard at this moment."""
    return Silence(alive, alive)


def silent_seconds(run: Run, alive: float) -> float:
    """For how many seconds at full speed it has been silent; 0 for one that was never heard."""
    silence = run.silence
    if silence is None:
        return 0.0
    before = silence.share_since - silence.since - silence.uncounted_seconds
    return before + (alive - silence.share_since) * run.share.speed


def hangs_at(run: Run, timeout_seconds: float) -> float:
    """When its silence will count as hanging if nothing changes; infinite for one that was never heard."""
    silence = run.silence
    if silence is None:
        return math.inf
    left = timeout_seconds - silent_seconds(run, silence.share_since)
    return silence.share_since + left / run.share.speed
