"""The application of a command, the entries of its store, and the options of several commands."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple, Protocol

import click
from flask import Flask, current_app

from ..config.settings import Config
from ..engine.engine import Engine
from ..request.fingerprint import KEYSPACE, SHORT_HASH
from ..request.proxies import actual
from ..stores.base import OWNER_BYTES, Entry, InspectableStore, Store, inspectable
from .output import print_aside, progress

MODES = ("lock", "token", "key", "once", "step", "mutex")

BATCH = 500
"""Keys that are read, or removed, in one round trip."""

_LONGEST_AGE = 366 * 86400
"""Seconds. An owner that seems older, or to come, is not one of the engine's."""

_PARTS = re.compile(r"([^:]*):(.*):([0-9a-f]{32})", re.DOTALL)

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
by_mode = click.option("--mode", type=click.Choice(MODES), help="Only this mode.")
by_endpoint = click.option(
    "--endpoint",
    metavar="ENDPOINT",
    help="Only this endpoint; for tokens, this purpose; for once, this scope.",
)


class State(Protocol):
    """The extension's state of an application."""

    config: Config
    store: Store
    engine: Engine
    given: frozenset[str]


Name = tuple[str, str, str, str]
"""A store key, and its mode, endpoint and hash."""


class Found(NamedTuple):
    """A store key, its parts and its entry; the endpoint of a token is its purpose, or `-`."""

    key: str
    mode: str
    endpoint: str
    digest: str
    entry: Entry

    @property
    def short(self) -> str:
        return self.digest[:SHORT_HASH]

    @property
    def state(self) -> str:
        """The meaning of the entry: `live`, `ended`, `record`, `token` or `unknown`."""
        if self.entry.kind != "claim":
            return self.entry.kind
        if self.entry.lease is None:
            return "unknown"
        return "live" if self.entry.lease > 0 else "ended"

    @property
    def holds(self) -> str:
        """The state; a live lock is `held`, for it may only wait for its interval."""
        return "held" if self.mode == "lock" and self.state == "live" else self.state

    @property
    def began(self) -> float | None:
        """The time of the claim, by the clock of its machine; None for unknown."""
        if self.entry.lease is None:
            return None
        began = int.from_bytes(self.entry.mark[-OWNER_BYTES:][:6]) / 1000
        return began if abs(time.time() - began) < _LONGEST_AGE else None

    @property
    def age(self) -> float | None:
        """Seconds since the claim, by the clocks of two machines."""
        return None if self.began is None else max(0.0, time.time() - self.began)


def this_app() -> Flask:
    return actual(current_app)


def state_of(app: Flask) -> State:
    state: State = app.extensions["idempotence"]
    return state


def this_state() -> State:
    """Return the state of the application; print a warning if no other process sees its store."""
    state = state_of(this_app())
    if not state.store.shared and not this_app().testing:
        print_aside(
            "Claims are kept in the memory of each process: this command has an empty store of "
            "its own, and cannot see those of the running workers."
        )
    return state


def scan(
    state: State,
    label: str,
    *,
    mode: str | None = None,
    endpoint: str | None = None,
    digest: str = "",
) -> Iterator[list[Found]]:
    """Yield an application's entries in batches, behind a progress bar with a label.

    They are those of a mode, an endpoint, and a hash that begins with `digest`. Expired ones are
    left out; a key may come twice while the store is growing.
    """
    store = inspectable(state.store)
    beginning = f"{state.config.prefix}:{KEYSPACE}:"
    searched = beginning if mode is None else f"{beginning}{mode}:"
    if mode is not None and endpoint is not None:
        searched += f"{endpoint}:"

    def names(advance: Callable[[int], object]) -> Iterator[Name]:
        for key in store.scan(searched):
            advance(1)
            if parts := _PARTS.fullmatch(key.removeprefix(beginning)):
                found_mode, place, found_digest = parts.groups()
                if endpoint in (None, place) and found_digest.startswith(digest):
                    yield key, found_mode, place, found_digest

    with progress(label, store.count_all()) as advance:
        found = names(advance)
        while batch := list(islice(found, BATCH)):
            yield peek(store, batch)


def peek(store: InspectableStore, names: list[Name]) -> list[Found]:
    """Return the names that have an entry, with their entries."""
    entries = store.peek_all([key for key, *_ in names])
    return [Found(*name, entry) for name, entry in zip(names, entries, strict=True) if entry]
