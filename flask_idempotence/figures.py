"""The figures of the guards, the store and the keeper, for Prometheus and OpenTelemetry alike.

No label ever holds a value that a client has sent: endpoints, modes, error slugs and names of
operations are all finite.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from flask import Flask

from .engine.engine import engine_of
from .engine.store_calls import Instrument
from .errors import ConfigurationError
from .signals import ALL_SIGNALS

_PLACE = ("mode", "endpoint")

# Arguments of signals that hold seconds, or one of a few words.
PASSED_ON = {
    "claimed": ("lease", "waited"),
    "replayed": ("waited",),
    "rejected": ("waited",),
    "observed": ("reason",),
    "lease_lost": ("during",),
    "store_failed": ("operation",),
}


@dataclass(frozen=True, slots=True, eq=False)
class Figure:
    """A metric: its name, its description, its labels and its buckets."""

    name: str  # a counter's `_total` is left out
    text: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()  # a histogram's upper bounds, in seconds


REQUESTS = Figure("idempotence_requests", "Requests at a guard, by outcome.", (*_PLACE, "outcome"))
SETTLEMENTS = Figure("idempotence_settlements", "Settled claims.", (*_PLACE, "outcome"))
OBSERVED = Figure(
    "idempotence_observed", "Requests that a guard would have answered.", (*_PLACE, "reason")
)
LEASES_LOST = Figure(
    "idempotence_leases_lost", "Claims that ended before they were settled.", (*_PLACE, "during")
)
STORE_FAILURES = Figure(
    "idempotence_store_failures", "Operations that the store did not answer.", ("operation",)
)
TOKENS = Figure("idempotence_tokens", "One-time tokens, issued and spent.", ("outcome",))
COUNTERS = (REQUESTS, OBSERVED, SETTLEMENTS, LEASES_LOST, STORE_FAILURES, TOKENS)

STORE_SECONDS = Figure(
    "idempotence_store_seconds",
    "Duration of the store's operations, answered or not.",
    ("operation",),
    (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
)
KEEPER_LAG = Figure(
    "idempotence_keeper_lag_seconds",
    "Delay between the time when a renewal was due and its beginning.",
    (),
    (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
SETTLEMENTS_PENDING = Figure(
    "idempotence_settlements_pending", "Settlements that wait for the store to answer."
)


class Report(Instrument):
    """Receives the signals and the measurements of one application."""

    def connect(self, app: Flask) -> None:
        """Receive the signals of an application from now on."""
        for signal in ALL_SIGNALS:
            signal.connect(partial(self.receive, signal.name), app, weak=False)
        engine_of(app).store_calls.instruments += (self,)

    def receive(self, name: str, app: Flask, /, **sent: Any) -> None:
        """Receive a signal, by its name."""
        raise NotImplementedError


def register_once(app: Flask, kind: str, destination: object) -> None:
    """Refuse an application whose figures go to this registry or meter; `kind` names its class."""
    if "idempotence" not in app.extensions:
        raise ConfigurationError(
            f"{kind}(app) needs Idempotence, which is not registered on the application "
            f"{app.name!r} yet: call Idempotence(app) first."
        )
    counting: list[object] = app.extensions.setdefault("idempotence_metrics", [])
    if any(each is destination for each in counting):
        raise ConfigurationError(
            f"The metrics of the application {app.name!r} are counted already: everything "
            f"would count twice. Register {kind} once for each registry."
        )
    counting.append(destination)


COUNTED = {
    **dict.fromkeys(("claimed", "replayed", "rejected"), REQUESTS),
    **dict.fromkeys(("completed", "released"), SETTLEMENTS),
    "observed": OBSERVED,
    "lease_lost": LEASES_LOST,
    "store_failed": STORE_FAILURES,
    # The purpose is no label: the query of the token URL makes it up.
    **dict.fromkeys(("token_issued", "token_spent"), TOKENS),
}


def labels_of(name: str, sent: dict[str, Any]) -> tuple[str, ...]:
    """Return the values of the labels of a signal's counter, from the signal's arguments."""
    outcome = sent["error"].slug if name == "rejected" else name.removeprefix("token_")
    known = sent | {"endpoint": sent["endpoint"] or "", "outcome": outcome}
    return tuple(known[label] for label in COUNTED[name].labels)
