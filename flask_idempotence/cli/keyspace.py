"""The keys of an application in its store, and their entries."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from ..request.hashing import KEYSPACE
from ..stores.base import Entry, InspectableStore, inspectable
from .context import State
from .output import progress

BATCH = 500
"""Keys that are read, or removed, in one round trip."""

_PARTS = re.compile(r"([^:]*):(.*):([0-9a-f]{32})", re.DOTALL)


class Name(NamedTuple):
    """A store key and its parts; the endpoint of a token is its purpose, or `-`."""

    key: str
    mode: str
    endpoint: str
    digest: str


class Found(NamedTuple):
    """A key of the application, and its entry."""

    name: Name
    entry: Entry

    @property
    def state(self) -> str:
        """The meaning of the entry: `live`, `ended`, `record`, `token` or `unknown`."""
        if self.entry.kind != "claim" or self.entry.lease is None:
            return self.entry.kind
        return "live" if self.entry.lease > 0 else "ended"


def scan(
    state: State, label: str, *, mode: str | None, endpoint: str | None, digest: str = ""
) -> Iterator[list[Found]]:
    """Yield an application's keys in batches, behind a progress bar with a label.

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
            parts = _PARTS.fullmatch(key.removeprefix(beginning))
            name = parts and Name(key, *parts.groups())
            if name and endpoint in (None, name.endpoint) and name.digest.startswith(digest):
                yield name

    with progress(label, store.count_all()) as advance:
        found = names(advance)
        while batch := list(islice(found, BATCH)):
            yield peek(store, batch)


def peek(store: InspectableStore, names: list[Name]) -> list[Found]:
    """Return the keys that have an entry, with their entries."""
    entries = store.peek_all([name.key for name in names])
    return [Found(name, entry) for name, entry in zip(names, entries, strict=True) if entry]
