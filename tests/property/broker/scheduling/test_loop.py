from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tiercel.broker.scheduling.interface import Trigger
from tiercel.broker.scheduling.loop import LoopSettings, due_trigger, ran, start, triggered

EVENTS = [trigger for trigger in Trigger if trigger is not Trigger.INTERVAL]
steps = st.lists(st.tuples(st.floats(0, 100), st.one_of(st.none(), st.sampled_from(EVENTS)), st.booleans()))


@given(steps=steps)
def test_no_event_is_lost_and_the_interval_stays_within_its_bounds(
    steps: list[tuple[float, Trigger | None, bool]],
) -> None:
    settings = LoopSettings(interval_seconds=1.0, max_factor=16, gather_seconds=0.05)
    now, state = 0.0, start(LoopSettings(interval_seconds=1.0), 0.0)
    for passed, event, changed in steps:
        now += passed
        if event is not None:
            state = triggered(state, event, settings, now)
            assert state.next_at <= now + 0.05
        trigger = due_trigger(state, now)
        if trigger is None:
            assert state.next_at > now
            continue
        assert (trigger is Trigger.INTERVAL) is (state.pending is None)
        state = ran(state, trigger, settings, now, changed=changed)
        assert state.pending is None
        assert now + 1.0 <= state.next_at <= now + 16.0
        if trigger is not Trigger.INTERVAL or changed:
            assert state.factor == 1
