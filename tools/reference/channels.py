"""What is told and asked over MQTT, HTTP and to Prometheus, from where it is told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tiercel.broker.dashboard.accounts import Accounts
from tiercel.broker.dashboard.asking import Asking
from tiercel.broker.dashboard.histories import Histories
from tiercel.broker.dashboard.site import API, Site
from tiercel.broker.progress.topics import ROOT, TOPICS
from tiercel.serving.rest.extensions import add_descriptions, add_explaining, add_handover, add_metrics
from tiercel.serving.rest.feedback import FeedbackDoor
from tiercel.serving.rest.generation import add_generation
from tiercel.serving.rest.handed_calls import add_handed_calls
from tiercel.serving.rest.routes import Routes
from tools.reference.contract import calls, who_may
from tools.reference.text import code, described, table

_NOBODY: Any = None
"""In place of what routes ask once they are called, which nobody does here."""


def topics_page() -> str:
    """The page of MQTT's topics."""
    rows = [
        (
            code(f"{ROOT}/{topic.path}"),
            described(topic.path, topic.tells),
            str(topic.qos),
            "yes" if topic.is_state else "no",
        )
        for topic in TOPICS
    ]
    return "\n".join(
        [
            "# MQTT topics\n",
            (
                "The payloads, and who may read what: [news over MQTT](../mqtt.md). In a name, characters that mean "
                "something in a topic (`/`, `+`, `#`) are percent-encoded.\n"
            ),
            table(("topic", "tells", "QoS", "retained"), rows),
        ]
    )


def addresses_page() -> str:
    """The page of HTTP's addresses."""
    parts = ["# HTTP addresses\n", "## Inference server\n"]
    rows = [(code(f"{method} {path}"), described(path, words)) for method, path, words in _of_serving()]
    parts.append(table(("address", "answers"), sorted(rows, key=lambda row: row[0].partition(" ")[2])))
    parts.append("## Broker\n")
    parts.append("With `Authorization: Bearer TOKEN`, or the cookie of a browser that is signed in.\n")
    parts.append(table(("address", "answers", "for the role"), _of_broker()))
    return "\n".join(parts)


def _of_serving() -> Iterator[tuple[str, str, str]]:
    routes = Routes(*[_NOBODY] * 6)
    add_metrics(routes, _NOBODY)
    add_descriptions(routes, _NOBODY)
    add_explaining(routes, _NOBODY, _NOBODY)
    FeedbackDoor(*[_NOBODY] * 6).add_to(routes)
    add_generation(routes, _NOBODY, _NOBODY, _NOBODY)
    add_handed_calls(routes, _NOBODY, _NOBODY)
    add_handover(routes, _NOBODY)
    return routes.described()


def _of_broker() -> Iterable[tuple[str, str, str]]:
    parts = (Histories.__new__(Histories), Accounts.__new__(Accounts), Asking.__new__(Asking))
    further = tuple(each for part in parts for each in part.routes())
    site = Site(_NOBODY, _NOBODY, _NOBODY, _NOBODY, _NOBODY, (), further)
    for each in site.routes:
        words = described(each.path, each.read.__doc__ or "") if each.read is not None else calls()[each.method]
        yield code(f"{each.verb} {API}{each.path}"), words, who_may("tiercel.v1", each.method)
    told = {API + each.path for each in site.routes}
    for route in site.app.router.routes():
        path = route.resource.canonical if route.resource is not None else ""
        if path not in told and route.method != "HEAD":
            yield code(f"{route.method} {path}"), described(path, route.handler.__doc__ or ""), ""
