"""The keys of an application in its store, and what they hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import click

from ..request.hashing import KEYSPACE
from .output import Progress

if TYPE_CHECKING:
    from ..config.settings import Config
    from ..stores.base import Entry, InspectableStore

MODES = ("lock", "token", "key", "once")

BATCH = 500
"""Keys that are looked at, or removed, in one round trip."""

_HASH = re.compile(r"[0-9a-f]{32}")
_SHORTEST = 6

by_mode = click.option("--mode", type=click.Choice(MODES), help="Only this mode.")
by_endpoint = click.option(
    "--endpoint",
    metavar="ENDPOINT",
    help="Only this endpoint; for tokens, this purpose; for once, this scope.",
)


@dataclass(frozen=True, slots=True)
class Name:
    """A key, taken apart.

    Attributes:
        key: the whole of it.
        mode: the guard's.
        endpoint: the view's; for tokens the purpose, or `-`.
        digest: the hash, 32 hexadecimal digits.
    """

    key: str
    mode: str
    endpoint: str
    digest: str


Found = tuple[Name, "Entry"]


def names(
    store: InspectableStore,
    config: Config,
    progress: Progress,
    *,
    mode: str | None = None,
    endpoint: str | None = None,
) -> Iterator[Name]:
    """Yield an application's keys; one may come twice while the store is growing."""
    beginning = f"{config.prefix}:{KEYSPACE}:"
    searched = beginning if mode is None else f"{beginning}{mode}:"
    if mode is not None and endpoint is not None:
        searched += f"{endpoint}:"
    for key in store.scan(searched):
        progress.update(1)
        name = _taken_apart(key, beginning)
        if name is not None and endpoint in (None, name.endpoint):
            yield name


def _taken_apart(key: str, beginning: str) -> Name | None:
    rest, _, digest = key.removeprefix(beginning).rpartition(":")
    mode, separator, endpoint = rest.partition(":")
    if not separator or not _HASH.fullmatch(digest):
        return None
    return Name(key, mode, endpoint, digest)


def look(store: InspectableStore, found: Iterator[Name]) -> Iterator[list[Found]]:
    """Yield what keys hold, in batches; those that have expired meanwhile are left out."""
    while batch := list(islice(found, BATCH)):
        entries = store.peek_all([name.key for name in batch])
        yield [
            (name, entry) for name, entry in zip(batch, entries, strict=True) if entry is not None
        ]


def state_of(entry: Entry) -> str:
    """Return what an entry means: `live`, `ended`, `record`, `token` or `unknown`."""
    if entry.kind != "claim" or entry.lease is None:
        return entry.kind
    return "live" if entry.lease > 0 else "ended"


class Digest(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases only
    """The beginning of a key's hash, as a log line shows it."""

    name = "hash"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check it."""
        digest = value.strip().removeprefix("key=").lower()
        if not re.fullmatch(rf"[0-9a-f]{{{_SHORTEST},32}}", digest):
            self.fail(
                f"give at least the first {_SHORTEST} digits of what a log line shows as "
                "key=..., which are 0-9 and a-f.",
                param,
                ctx,
            )
        return digest
