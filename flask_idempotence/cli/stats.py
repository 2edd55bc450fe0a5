"""`flask idempotence stats`: count the entries of the store."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

import click
from flask.cli import with_appcontext

from .context import as_json, by_endpoint, by_mode, this_state
from .keyspace import scan
from .output import print_aside, print_json, print_table, styled

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
@with_appcontext
def command(*, mode: str | None, endpoint: str | None, as_json: bool, as_prometheus: bool) -> None:
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
    counts: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for batch in scan(this_state(), "Counting", mode=mode, endpoint=endpoint):
        for found in batch:
            counts[found.name.mode, found.name.endpoint][found.state] += 1
            counts[found.name.mode, found.name.endpoint]["bytes"] += found.entry.size
    rows: list[dict[str, str | int]] = [
        {"mode": mode, "endpoint": endpoint, **_columns(count)}
        for (mode, endpoint), count in sorted(counts.items())
    ]
    total = _columns(sum(counts.values(), Counter()))
    if as_prometheus:
        _print_metrics(counts)
        return
    if as_json:
        print_json({"rows": rows, "total": total})
        return
    header = ("MODE", "ENDPOINT", "LIVE", "ENDED", "RECORDS", "TOKENS", "BYTES")
    print_table(header, [tuple(row.values()) for row in rows])
    keys = sum(total.values()) - total["bytes"]
    print_aside(styled(f"{keys} keys, {total['bytes']} bytes in all.", dim=True))


def _columns(count: Counter[str]) -> dict[str, int]:
    return {title: count[state] for state, title in (*_COLUMNS.items(), ("bytes", "bytes"))}


def _print_metrics(counts: Mapping[tuple[str, str], Counter[str]]) -> None:
    """Print the counts as gauges.

    https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
    """
    merged: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for (mode, endpoint), count in counts.items():
        # The purpose of a token comes from the query of the token URL: it would be any label.
        merged[mode, "" if mode == "token" else endpoint].update(count)
    keys, sizes = [], []
    for (mode, endpoint), count in sorted(merged.items()):
        place = f'mode="{_escaped(mode)}",endpoint="{_escaped(endpoint)}"'
        for state, title in _COLUMNS.items():
            keys.append(f'idempotence_keys{{{place},state="{title}"}} {count[state]}')
        sizes.append(f"idempotence_bytes{{{place}}} {count['bytes']}")
    for name, text, lines in (
        ("idempotence_keys", "Keys in the store, by their state.", keys),
        ("idempotence_bytes", "Bytes of all values in the store.", sizes),
    ):
        click.echo("\n".join([f"# HELP {name} {text}", f"# TYPE {name} gauge", *lines]))


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
