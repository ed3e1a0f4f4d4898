"""The smallest batch and the most useful variant that keep up with what arrives (Fang et al., reconstructed).

The paper says that "a simple heuristic keeps response delay low while meeting the throughput requirement"; the rule
below is ours ("Fang-style"). A setting (variant, batch) will do when

* the request that waited longest is answered within the objective,
* what is left then, with what arrives meanwhile, can still be answered within the objective by the fastest variant, and
* where delay within the objective costs something: the pool, if it always ran this setting, would keep up with the
  arrival rate and a tenth more. Where it costs nothing that test is left out, so that an accurate variant gets the time
  that a fast one leaves.

For each variant the smallest batch that will do is taken, since it has the lowest delay, but no less than a free
worker's share of what waits. Of these the variant is chosen whose answers are worth most, counting those to requests
that arrive during the run. When nothing will do, or more arrives than the fastest variant can do, that one runs the
largest batch that ends within the objective.
"""

from __future__ import annotations

from tiercel.serving.scheduling.interface import Decision, Ended, Profile, View

_MARGIN = 0.1


class HeuristicScheduler:
    """Fang-style heuristic; see the module's description."""

    def decide(self, view: View) -> Decision | None:
        """See :meth:`Scheduler.decide`."""
        best = fastest(view)
        drain = view.profiles[best.variant].capacity(best.batch) * len(view.busy)
        rate = max(view.rate, view.recent_rate)
        if rate >= drain:
            return best
        best_worth = float("-inf")
        for index, profile in enumerate(view.profiles):
            batch = sufficient_batch(view, profile, rate, drain)
            if batch is None:
                continue
            worth = worth_of(view, profile, batch, rate)
            if worth > best_worth:
                best, best_worth = Decision(index, batch), worth
        return best

    def ended(self, run: Ended) -> None:
        """Changes nothing."""


def sufficient_batch(view: View, profile: Profile, rate: float, drain: float) -> int | None:
    """The smallest batch with which a variant keeps up and is in time, or None.

    Args:
        view: What is known.
        profile: Of the variant.
        rate: Rows that arrive per second.
        drain: Rows per second of the pool with the fastest variant.
    """
    workers = len(view.busy)
    share = min(view.count / sum(seconds <= 0.0 for seconds in view.busy), profile.max_batch)
    need = 0.0 if view.utility.is_flat else (1.0 + _MARGIN) * rate
    for batch, seconds in zip(profile.batches, profile.seconds, strict=True):
        if batch < share or workers * batch < need * seconds:
            continue
        taken = min(batch, view.count)
        run = profile.seconds_for(taken)
        left = view.count - taken + rate * run
        in_time = view.oldest + run <= view.objective and run + left / drain <= view.objective
        return batch if in_time else None
    return None


def worth_of(view: View, profile: Profile, batch: int, rate: float) -> float:
    """Mean utility of the answers of a run and of those to requests that have to wait for its end, at the worst."""
    taken = min(batch, view.count)
    run = profile.seconds_for(taken)
    meanwhile = rate * run / len(view.busy)
    now = view.utility.value(profile.accuracy, view.oldest + run, view.objective)
    then = view.utility.value(profile.accuracy, 2.0 * run, view.objective)
    return (taken * now + meanwhile * then) / (taken + meanwhile)


def fastest(view: View) -> Decision:
    """The variant with the highest capacity, with the largest batch that ends within the objective."""
    choices = (
        (profile.capacity(batch), -index, batch)
        for index, profile in enumerate(view.profiles)
        for batch in (profile.largest_within(view.objective),)
    )
    _, index, batch = max(choices)
    return Decision(-index, batch)
