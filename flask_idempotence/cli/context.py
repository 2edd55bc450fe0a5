"""The application of a command, the entries of its store, and the options of several commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import click
from flask import Flask, current_app

from ..engine.engine import Engine, engine_of
from ..request.fingerprint import KEYSPACE, SHORT_HASH
from ..request.proxies import actual
from ..stores.base import OWNER_BYTES, Entry, InspectableStore, began_at, inspectable
from .output import print_aside, progress

MODES = ("lock", "token", "key", "once", "step", "mutex")

BATCH = 500
"""Keys that are read, or removed, in one round trip."""

_PARTS = re.compile(r"([^:]*):(.*):([0-9a-f]{32})", re.DOTALL)

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
by_mode = click.option("--mode", type=click.Choice(MODES), help="Only this mode.")
by_endpoint = click.option(
    "--endpoint",
    metavar="ENDPOINT",
    help="Only this endpoint; for tokens, this purpose; for once, this scope.",
)

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
    def began(self) -> float:
        """The time of the claim, by the clock of its machine; 0 for unknown."""
        return 0.0 if self.entry.lease is None else began_at(self.entry.mark[-OWNER_BYTES:])


def this_app() -> Flask:
    return actual(current_app)


def this_engine() -> Engine:
    """Return the application's engine; print a warning if no other process sees its store."""
    engine = engine_of(this_app())
    if not engine.store.shared and not this_app().testing:
        print_aside(
            "Claims are kept in the memory of each process: this command has an empty store of "
            "its own, and cannot see those of the running workers."
        )
    return engine


def scan(
    engine: Engine,
    label: str,
    *,
    mode: str | None = None,
    endpoint: str | None = None,
    digest: str = "",
) -> Iterator[Found]:
    """Yield an application's entries, behind a progress bar with a label.

    They are those of a mode, an endpoint, and a hash that begins with `digest`. Expired ones are
    left out; a key may come twice while the store is growing.
    """
    store, beginning = inspectable(engine.store), f"{engine.config.prefix}:{KEYSPACE}:"
    searched = beginning if mode is None else f"{beginning}{mode}:"
    if mode is not None and endpoint is not None:
        searched += f"{endpoint}:"
    keys = store.scan(searched)
    with progress(label, store.count_all()) as advance:
        while batch := list(islice(keys, BATCH)):
            advance(len(batch))
            parts = (_PARTS.fullmatch(key, len(beginning)) for key in batch)
            yield from peek(
                store,
                [
                    (part.string, part[1], part[2], part[3])
                    for part in parts
                    if part and endpoint in (None, part[2]) and part[3].startswith(digest)
                ],
            )


def peek(store: InspectableStore, names: list[Name]) -> list[Found]:
    """Return the names that have an entry, with their entries."""
    entries = store.peek_all([key for key, *_ in names]) if names else ()
    return [Found(*name, entry) for name, entry in zip(names, entries, strict=True) if entry]
