"""What the scheduler keeps of endpoints: what they are, what was measured of them, and what they may use."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tiercel.core.endpoints import EndpointLoad, EndpointUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tiercel.broker.scheduling.interface import EndpointView
    from tiercel.core.shares import Share

IDLE = EndpointLoad()


@dataclass(frozen=True, slots=True)
class EndpointObserved:
    """An endpoint as it is now, its load and share left out; ``view`` is None while no version of it is live.

    ``copies`` are the same for the other nodes that answer, each under a name of its own (:func:`name_on`).
    """

    name: str
    view: EndpointView | None
    copies: tuple[EndpointView, ...] = ()


@dataclass(frozen=True, slots=True)
class EndpointsMeasured:
    """What a node's inference server counted lately; endpoints that nobody asked anything are not listed.

    ``lag_seconds`` is by how much its event loop came late, or None; ``heard_at`` is the broker's steady clock.
    """

    node_id: str
    usages: tuple[EndpointUsage, ...]
    lag_seconds: float | None = None
    heard_at: float = 0.0


@dataclass(frozen=True, slots=True)
class ShareMoved:
    """An endpoint may use something else from now on; ``share`` is None when nothing limits it."""

    view: EndpointView
    share: Share | None


EndpointNews = EndpointObserved | EndpointsMeasured


@dataclass(frozen=True, slots=True)
class Counted:
    """What a node counted of an endpoint since the broker began to hear of it; it only grows."""

    heard_at: float  # when it was heard last, seconds of the broker's steady clock
    usage: EndpointUsage  # of the endpoint
    all_cpu_seconds: float  # CPU that running all the node's models took
    lag_seconds: float | None = None  # by how much its inference server's event loop came late at last, or None


def name_on(endpoint: str, node_id: str) -> str:
    """What a policy knows an endpoint by on a node that has a copy of its version; no endpoint has such a name."""
    return f"{endpoint}@{node_id}"


def endpoint_of(name: str) -> str:
    """The endpoint that a policy knows by this name."""
    return name.partition("@")[0]


class EndpointStates:
    """Owned by the scheduler; others only read it.

    Args:
        declare: Tells a node what its endpoints may use, and in how many seconds they should answer, as a whole.
    """

    def __init__(self, declare: Callable[[str, Mapping[str, Share], Mapping[str, float]], None]) -> None:
        self._declare = declare
        self._views: dict[str, EndpointView] = {}
        self._counted: dict[str, dict[str, EndpointUsage]] = {}
        self._totals: dict[str, dict[str, EndpointUsage]] = {}
        self._cpu_seconds: dict[str, float] = {}
        self._heard_at: dict[str, float] = {}
        self._loads: dict[str, dict[str, EndpointLoad]] = {}
        self._lags: dict[str, float | None] = {}
        self._shares: dict[str, dict[str, Share]] = {}
        self._objectives: dict[str, dict[str, float]] = {}
        self._online: frozenset[str] = frozenset()

    def on_news(self, message: EndpointNews) -> None:
        """Take in news. What is counted adds up until the next snapshot."""
        match message:
            case EndpointsMeasured(node_id, usages, lag_seconds, heard_at):
                self._lags[node_id], self._heard_at[node_id] = lag_seconds, heard_at
                counted = self._counted.setdefault(node_id, {})
                totals = self._totals.setdefault(node_id, {})
                for usage in usages:
                    counted[usage.endpoint] = _sum(counted.get(usage.endpoint), usage)
                    totals[usage.endpoint] = _sum(totals.get(usage.endpoint), usage)
                    self._cpu_seconds[node_id] = self._cpu_seconds.get(node_id, 0.0) + usage.cpu_seconds
            case EndpointObserved(name, view, copies):
                for known in [each for each in self._views if endpoint_of(each) == name]:
                    del self._views[known]
                if view is not None:
                    self._views |= {each.name: each for each in (view, *copies)}

    def views(self, nodes: Iterable[str]) -> tuple[EndpointView, ...]:
        """The endpoints on these nodes by name, with what was counted since the last call.

        What was measured of a node stays until it is heard of again: to be silent for a moment is not to be idle.
        """
        for node_id, counted in self._counted.items():
            lag = self._lags.get(node_id)
            self._loads[node_id] = {name: load_of(usage, lag) for name, usage in counted.items()}
        self._counted.clear()
        self._online = frozenset(nodes)
        return self.last_views()

    def last_views(self) -> tuple[EndpointView, ...]:
        """The endpoints by name, with what the last call of :meth:`views` found measured."""
        return tuple(self._filled(view) for _, view in sorted(self._views.items()) if view.node_id in self._online)

    def node_of(self, name: str) -> str:
        """The node on which an endpoint answers, whether that is online or not; empty while no version is live."""
        view = self._views.get(name)
        return "" if view is None else view.node_id

    def load(self, name: str) -> EndpointLoad | None:
        """What was measured of an endpoint last, on its home or (by :func:`name_on`) another node; None: nothing."""
        view = self._views.get(name)
        if view is None or view.node_id not in self._loads:
            return None
        return self._loads[view.node_id].get(endpoint_of(name), IDLE)

    def counted(self, endpoint: str) -> Mapping[str, Counted]:
        """What was counted of an endpoint in all, by node; nodes that were not heard yet are not in it."""
        return {
            node_id: Counted(
                self._heard_at[node_id],
                totals.get(endpoint, EndpointUsage(endpoint, 0.0)),
                self._cpu_seconds.get(node_id, 0.0),
                self._lags.get(node_id),
            )
            for node_id, totals in self._totals.items()
        }

    def share(self, name: str) -> Share | None:
        """What an endpoint may use; None while nothing limits it."""
        view = self._views.get(name)
        return None if view is None else self._shares.get(view.node_id, {}).get(endpoint_of(name))

    def decide(self, shares: Mapping[str, Share], seen: Iterable[EndpointView]) -> list[ShareMoved]:
        """Carry out a plan's shares for the endpoints of a snapshot; returns what moved, by node and endpoint.

        Nothing is decided about a node that was not heard of since the broker began: to a policy that has measured
        nothing every endpoint is idle, and what their limits are there for goes on.
        """
        views: dict[str, list[EndpointView]] = defaultdict(list)
        for view in seen:
            views[view.node_id].append(view)
        moved: list[ShareMoved] = []
        for node_id in sorted({*views, *self._shares, *self._online} & self._loads.keys()):
            before, here = self._shares.get(node_id), views[node_id]
            after = {endpoint_of(view.name): shares[view.name] for view in here if view.name in shares}
            objectives = {
                endpoint_of(view.name): view.objective_seconds for view in here if view.objective_seconds is not None
            }
            old, new = _limits(before or {}), _limits(after)
            if before is None or old != new or objectives != self._objectives.get(node_id):
                self._declare(node_id, after, objectives)
            changed = [view for view in here if old.get(endpoint_of(view.name)) != new.get(endpoint_of(view.name))]
            moved += [ShareMoved(view, after.get(endpoint_of(view.name))) for view in changed]
            self._shares[node_id], self._objectives[node_id] = after, objectives
        return moved

    def _filled(self, view: EndpointView) -> EndpointView:
        load = self.load(view.name) or IDLE
        return replace(
            view,
            requests_per_second=load.requests_per_second,
            delay_seconds=load.delay_seconds,
            cpu_cores_used=load.cpu_cores,
            share=self.share(view.name),
            in_objective=load.in_objective,
            p95_seconds=load.p95_seconds,
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
        before.failures + usage.failures,
        before.on_time + usage.on_time,
        usage.windows or before.windows,
        Counter(before.answered_by) + Counter(usage.answered_by),
    )


def load_of(usage: EndpointUsage, lag_seconds: float | None) -> EndpointLoad:
    """What was counted, as rates; ``lag_seconds`` is by how much the server's event loop came late, or None."""
    delay = usage.delay_seconds / usage.answers if usage.answers else None
    ended = usage.answers + usage.failures
    chosen = sum(usage.answered_by.values())
    judged = ended > 0 and any(window.in_objective is not None for window in usage.windows)
    return EndpointLoad(
        usage.requests / usage.seconds,
        delay,
        usage.cpu_seconds / usage.seconds,
        min(usage.on_time / ended, 1.0) if judged else None,
        usage.windows,
        lag_seconds,
        {variant: answers / chosen for variant, answers in sorted(usage.answered_by.items()) if chosen},
    )
