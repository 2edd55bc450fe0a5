"""The entries of the store: `flask idempotence stats`, `purge`, `init-db` and `prune`."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import click
from flask import current_app

from ..engine.engine import Engine, engine_of
from ..engine.guard import MODES
from ..request.fingerprint import KEYSPACE, SHORT_HASH
from ..stores.base import OWNER_BYTES, Entry, Outcome, began_at, inspectable
from .output import as_json, echo, escaped, print_aside, print_json, print_table, show_progress

_logger = logging.getLogger("flask_idempotence")

BATCH = 500  # keys that are read, or removed, in one round trip

_PARTS = re.compile(r"([^:]*):(.*):([0-9a-f]{32})", re.DOTALL)

by_mode = click.option("--mode", type=click.Choice(sorted(MODES)), help="Only this mode.")
by_endpoint = click.option(
    "--endpoint",
    metavar="ENDPOINT",
    help="Only this endpoint; for tokens, this purpose; for once, this scope.",
)


class Found(NamedTuple):
    """A store key, its parts and its entry; the endpoint of a token is its purpose, or `-`."""

    key: str
    mode: str
    endpoint: str
    entry: Entry

    @property
    def short(self) -> str:
        """The hash in its key, as log lines show it."""
        return self.key.rpartition(":")[2][:SHORT_HASH]

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


def this_engine() -> Engine:
    """Return the application's engine; print a warning if no other process sees its store."""
    engine = engine_of(current_app)
    if not engine.store.shared and not current_app.testing:
        print_aside(
            "Claims are kept in the memory of each process: this command has an empty store of "
            "its own, and cannot see those of the running workers."
        )
    return engine


def scan(
    engine: Engine, *, mode: str | None = None, endpoint: str | None = None, digest: str = ""
) -> Iterator[Found]:
    """Yield an application's entries.

    They are those of a mode, an endpoint, and a hash that begins with `digest`. Expired ones are
    left out; a key may come twice while the store is growing.
    """
    store, beginning = inspectable(engine.store), f"{engine.config.prefix}:{KEYSPACE}:"
    searched = beginning if mode is None else f"{beginning}{mode}:"
    if mode is not None and endpoint is not None:
        searched += f"{endpoint}:"
    keys, read = store.scan(searched), 0
    while batch := list(islice(keys, BATCH)):
        show_progress(read := read + len(batch))
        ours = [
            match
            for key in batch
            if (match := _PARTS.fullmatch(key, len(beginning)))
            and endpoint in (None, match[2])
            and match[3].startswith(digest)
        ]
        entries = store.peek_all([match.string for match in ours]) if ours else ()
        for match, entry in zip(ours, entries, strict=True):
            if entry:
                yield Found(match.string, match[1], match[2], entry)
    show_progress(read, is_over=True)


_COLUMNS = {"live": "live", "ended": "ended", "record": "records", "token": "tokens"}


@click.command("stats")
@by_mode
@by_endpoint
@as_json
@click.option(
    "--prometheus",
    "as_prometheus",
    is_flag=True,
    help="Print metrics in Prometheus' text format, for the textfile collector.",
)
def stats(*, mode: str | None, endpoint: str | None, as_json: bool, as_prometheus: bool) -> None:
    """Count the entries of the store.

    \b
    live     claims of views that run, and of locks whose interval is not over
    ended    claims whose process died, of routes that must not run twice
    records  remembered responses
    tokens   issued and not spent
    bytes    of all values; the server needs some 100 more for each key

    The store is read in batches while it is in use: concurrent changes may be counted or not.
    """  # noqa: D301 - click's mark for a block that is not to be wrapped
    if as_json and as_prometheus:
        raise click.UsageError("--json and --prometheus are two formats: choose one.")
    counts = defaultdict[tuple[str, str], Counter[str]](Counter)
    for found in scan(this_engine(), mode=mode, endpoint=endpoint):
        count = counts[_labels(found) if as_prometheus else (found.mode, found.endpoint)]
        count[_COLUMNS.get(found.state, found.state)] += 1
        count["bytes"] += found.entry.size
    titles = [*_COLUMNS.values(), "bytes"]
    rows: list[dict[str, str | int]] = [
        {"mode": mode, "endpoint": endpoint, **{title: count[title] for title in titles}}
        for (mode, endpoint), count in sorted(counts.items())
    ]
    total = {title: sum(count[title] for count in counts.values()) for title in titles}
    if as_prometheus:
        _print_metrics(rows)
    elif as_json:
        print_json({"rows": rows, "total": total})
    else:
        print_table(rows)
        size = total.pop("bytes")
        print_aside(f"{sum(total.values())} keys, {size} bytes in all.")


def _labels(found: Found) -> tuple[str, str]:
    # The purpose of a token comes from the query of the token URL: it would be any label.
    endpoint = "" if found.mode == "token" else found.endpoint
    mode, endpoint = (
        escaped(name).replace("\\", "\\\\").replace('"', '\\"') for name in (found.mode, endpoint)
    )
    return mode, endpoint


def _print_metrics(rows: list[dict[str, str | int]]) -> None:
    """Print the counts as gauges.

    https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
    """
    labels = 'mode="{mode}",endpoint="{endpoint}"'
    echo("# HELP idempotence_keys Keys in the store, by their state.")
    echo("# TYPE idempotence_keys gauge")
    for row in rows:
        for title in _COLUMNS.values():
            of = f'{labels.format_map(row)},state="{title}"'
            echo(f"idempotence_keys{{{of}}} {row[title]}")
    echo("# HELP idempotence_bytes Bytes of all values in the store.")
    echo("# TYPE idempotence_bytes gauge")
    for row in rows:
        echo(f"idempotence_bytes{{{labels.format_map(row)}}} {row['bytes']}")


@click.command("purge")
@by_mode
@by_endpoint
@click.option("--all", "everything", is_flag=True, help="All entries under the prefix.")
@click.option("--live", is_flag=True, help="Include live claims.")
@click.option("--yes", is_flag=True, help="Remove the entries. Without it, they are only counted.")
def purge(
    *, mode: str | None, endpoint: str | None, everything: bool, live: bool, yes: bool
) -> None:
    """Remove all entries of a mode or an endpoint; a dry run by default.

    Without --yes, the entries are only counted. Live claims stay, unless you give --live: their
    views may be running. The entries of other applications with the same prefix
    (IDEMPOTENCE_PREFIX) in this store are removed, too; those of other prefixes never.

    The consequence: a repeat whose response was remembered runs again, and a form whose token is
    gone is refused.
    """
    if not (mode or endpoint or everything):
        raise click.UsageError("Choose the entries: --mode, --endpoint, or --all.")
    engine = this_engine()
    store = inspectable(engine.store)
    removed, spared, changed = Counter[tuple[str, str, str]](), 0, 0
    found = scan(engine, mode=mode, endpoint=endpoint)
    while batch := list(islice(found, BATCH)):
        doomed = [each for each in batch if live or each.state != "live"]
        seen = [(each.key, each.entry) for each in doomed]
        outcomes = store.discard(seen) if yes else [Outcome.OK] * len(seen)
        removed.update(
            (each.mode, each.endpoint, each.state)
            for each, outcome in zip(doomed, outcomes, strict=True)
            if outcome is Outcome.OK
        )
        spared += len(batch) - len(doomed)
        changed += outcomes.count(Outcome.STALE)
    print_table(
        [
            {"mode": mode, "endpoint": endpoint, "holds": state, "keys": count}
            for (mode, endpoint, state), count in sorted(removed.items())
        ]
    )
    summary = f"{removed.total()} {'removed.' if yes else 'would be removed (--yes does it).'}"
    if spared:
        summary += f" Kept, because they are live: {spared} (--live removes them, too)."
    if changed:
        summary += f" Kept, because they changed in the meantime: {changed}."
    if not yes:
        prefix = engine.config.prefix
        summary += f" All applications with the prefix {prefix!r} in this store share the entries."
    print_aside(summary)
    if yes:
        _logger.info("Purged by hand: mode=%s endpoint=%s", mode, endpoint and escaped(endpoint))


def _this_sql_store() -> Any:  # SqlStore itself needs an extra
    store = engine_of(current_app).store
    if not hasattr(store, "create_table"):
        raise click.ClickException(
            "Only a store in a database needs this command, and this application has a "
            f"{type(store).__name__}: there is nothing to do."
        )
    return store


@click.command("init-db")
@click.option("--sql", is_flag=True, help="Print the statements, without connecting.")
def init_db(*, sql: bool) -> None:
    """Create the table of a store in a database.

    An existing table is not changed, and no other one is touched. If a table of that name lacks
    columns, the command names them and exits with 1.
    """
    store = _this_sql_store()
    if sql:
        echo(store.ddl())
        return
    store.facts()  # within the deadline, which creating has not
    was_missing = store.create_table()
    if lacking := store.facts()[0].missing:
        raise click.ClickException(
            f"The table flask_idempotence lacks {', '.join(lacking)}: it belongs to another "
            "release or application. Migrate it, or drop it (which loses all claims and "
            "remembered responses) and run this command again."
        )
    done = "Created the table {}." if was_missing else "The table {} exists and is up to date."
    echo(done.format("flask_idempotence"))


@click.command("prune")
@click.option(
    "--batch",
    default=100,
    show_default=True,
    type=click.IntRange(1, 10_000),
    help="Rows per statement.",
)
@click.option(
    "--pause",
    default=0.02,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds between two statements.",
)
def prune(*, batch: int, pause: float) -> None:
    """Remove the expired rows of a store in a database.

    Expired rows only take up space, and each write to the store removes some. Run this command
    from a timer, or after a burst; it works in small batches. Redis needs no pruning.
    """
    store, removed = _this_sql_store(), 0
    while (count := store.prune(batch)) == batch:
        show_progress(removed := removed + count, "rows removed")
        time.sleep(pause)
    show_progress(removed, "rows removed", is_over=True)
    print_aside(f"{removed + count} removed.")
