"""Signals: the events of the guards, for logs, metrics and tests.

The sender is always the application object. Every signal carries `mode` (`"token"`, `"lock"`,
`"key"`, `"once"`, `"step"`, or `"mutex"` for `lock`), `endpoint` (for `once` its scope; for a step
its name; `-` for a mutex; None for a token outside a request) and `key`, the shortened hash in
log lines; further arguments are named below. An exception of a receiver is logged, and changes
nothing.
"""

from __future__ import annotations

import logging
from typing import Literal

from blinker import NamedSignal, Namespace
from flask import Flask

SignalName = Literal[
    "claimed",
    "rejected",
    "replayed",
    "observed",
    "completed",
    "released",
    "lease_lost",
    "store_failed",
    "token_issued",
    "token_spent",
]

_signals = Namespace()
_logger = logging.getLogger("flask_idempotence")

claimed: NamedSignal = _signals.signal("claimed")
"""A request was the first, and its view is about to run. `lease`, `waited`: seconds."""

rejected: NamedSignal = _signals.signal("rejected")
"""A request was refused. `error`: the exception that answers it; `waited`: as for `claimed`."""

replayed: NamedSignal = _signals.signal("replayed")
"""A request got a replay, and its view did not run. `waited`: as for `claimed`."""

observed: NamedSignal = _signals.signal("observed")
"""A guard that only observes would have answered in place of the view. `reason`: the slug of the
refusal, `"replay"`, or `"error"` where the guard would have raised."""

completed: NamedSignal = _signals.signal("completed")
"""The view succeeded, and repeats are still recognised."""

released: NamedSignal = _signals.signal("released")
"""The claim was released, so that the same request may be sent again."""

lease_lost: NamedSignal = _signals.signal("lease_lost")
"""The claim ended, or was taken over, before it was settled. `during`: `"renew"` or `"settle"`."""

store_failed: NamedSignal = _signals.signal("store_failed")
"""The store did not answer. `operation`: the operation's name; `error`: the `StoreError`."""

token_issued: NamedSignal = _signals.signal("token_issued")
"""A token was issued and stored. `purpose`: as given."""

token_spent: NamedSignal = _signals.signal("token_spent")
"""A token was spent, by a guarded view or by `redeem_token`. `purpose`: as given."""

ALL_SIGNALS: tuple[NamedSignal, ...] = tuple(_signals.values())


def emit(signal: NamedSignal, app: Flask, /, **arguments: object) -> None:
    """Send a signal; the exception of a receiver is logged, never passed on."""
    if not signal.receivers:
        return
    for receiver in list(signal.receivers_for(app)):
        try:
            app.ensure_sync(receiver)(app, **arguments)
        except Exception:
            _logger.exception("A receiver of the signal %r failed.", signal.name)
