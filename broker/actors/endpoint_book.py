"""What the scheduler keeps of endpoints: what they are, what was measured of them, and what they may use."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tiercel.broker.domain.endpoints import EndpointLoad, EndpointUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tiercel.broker.domain.shares import Share
    from tiercel.broker.scheduling.interface import EndpointView

IDLE = EndpointLoad()


@dataclass(frozen=True, slots=True)
class EndpointObserved:
    """An endpoint as it is now, its load and share left out; ``view`` is None while no version of it is live."""

    name: str
    view: EndpointView | None


@dataclass(frozen=True, slots=True)
class EndpointsMeasured:
    """What a node's inference server counted lately; endpoints that nobody asked anything are not listed."""

    node_id: str
    usages: tuple[EndpointUsage, ...]


EndpointNews = EndpointObserved | EndpointsMeasured


class EndpointBook:
    """Owned by the scheduler; others only read it.

    Args:
        declare: Tells a node what its endpoints may use, as a whole.
    """

    def __init__(self, declare: Callable[[str, Mapping[str, Share]], None]) -> None:
        self._declare = declare
        self._views: dict[str, EndpointView] = {}
        self._counted: dict[str, dict[str, EndpointUsage]] = {}
        self._loads: dict[str, dict[str, EndpointLoad]] = {}
        self._shares: dict[str, dict[str, Share]] = {}

    def hear(self, message: EndpointNews) -> None:
        """Take in news. What is counted adds up until the next snapshot."""
        match message:
            case EndpointsMeasured(node_id, usages):
                counted = self._counted.setdefault(node_id, {})
                for usage in usages:
                    counted[usage.endpoint] = _sum(counted.get(usage.endpoint), usage)
            case EndpointObserved(name, view):
                if view is None:
                    self._views.pop(name, None)
                else:
                    self._views[name] = view

    def views(self, nodes: Iterable[str]) -> tuple[EndpointView, ...]:
        """The endpoints on these nodes by name, with what was counted since the last call.

        What was measured of a node stays until it is heard of again: to be silent for a moment is not to be idle.
        """
        for node_id, counted in self._counted.items():
            self._loads[node_id] = {name: _load(usage) for name, usage in counted.items()}
        self._counted.clear()
        online = frozenset(nodes)
        return tuple(self._filled(view) for _, view in sorted(self._views.items()) if view.node_id in online)

    def load(self, name: str) -> EndpointLoad | None:
        """What was measured of an endpoint last; None while nothing was."""
        view = self._views.get(name)
        return None if view is None or view.node_id not in self._loads else self._loads[view.node_id].get(name, IDLE)

    def share(self, name: str) -> Share | None:
        """What an endpoint may use; None while nothing limits it."""
        view = self._views.get(name)
        return None if view is None else self._shares.get(view.node_id, {}).get(name)

    def decide(self, shares: Mapping[str, Share], seen: Iterable[EndpointView]) -> bool:
        """Carry out a plan's shares for the endpoints of a snapshot; returns whether anything moved."""
        wanted: dict[str, dict[str, Share]] = defaultdict(dict)
        for view in seen:
            if view.name in shares:
                wanted[view.node_id][view.name] = shares[view.name]
        moved = False
        for node_id in sorted({*wanted, *self._shares}):
            before, after = self._shares.get(node_id, {}), wanted.get(node_id, {})
            if _limits(before) != _limits(after):
                self._declare(node_id, after)
                moved = True
            self._shares[node_id] = after
        return moved

    def _filled(self, view: EndpointView) -> EndpointView:
        load = self.load(view.name) or IDLE
        return replace(
            view,
            requests_per_second=load.requests_per_second,
            delay_seconds=load.delay_seconds,
            cpu_cores_used=load.cpu_cores,
            share=self.share(view.name),
        )


def _limits(shares: Mapping[str, Share]) -> dict[str, tuple[float, float | None]]:
    """What of shares a node has to know; what differs in the sixth digit only is the same."""
    return {
        name: (
            round(share.cpu_weight, 6),
            None if share.cpu_cap_cores is None else round(share.cpu_cap_cores, 6),
        )
        for name, share in shares.items()
    }


def _sum(before: EndpointUsage | None, usage: EndpointUsage) -> EndpointUsage:
    if before is None:
        return usage
    return EndpointUsage(
        usage.endpoint,
        before.seconds + usage.seconds,
        before.requests + usage.requests,
        before.answers + usage.answers,
        before.delay_seconds + usage.delay_seconds,
        before.cpu_seconds + usage.cpu_seconds,
    )


def _load(usage: EndpointUsage) -> EndpointLoad:
    delay = usage.delay_seconds / usage.answers if usage.answers else None
    return EndpointLoad(usage.requests / usage.seconds, delay, usage.cpu_seconds / usage.seconds)
